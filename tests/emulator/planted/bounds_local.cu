//! gemmlab args=x:u32[n],y:f32[n]=empty n=128 block=n grid=1
// An index exceeds the bounds of a local array.
extern "C" __global__ void k(const unsigned* x, float* y) {
  float own[8];
  int t = threadIdx.x;
  for (int i = 0; i < 8; ++i) own[i] = x[(t + i) % 128];
  y[t] = own[x[t]];  // expect: out of bounds
}
