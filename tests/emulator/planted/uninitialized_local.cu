//! gemmlab args=x:u32[n],y:f32[n]=empty n=64 block=n grid=1
// One element of the local array is never written.
extern "C" __global__ void k(const unsigned* x, float* y) {
  float own[8];
  int t = threadIdx.x;
  for (int i = 0; i < 7; ++i) own[(x[t] + i) % 8] = i;
  y[t] = own[(x[t] + t) % 8];  // expect: uninitialized read
}
