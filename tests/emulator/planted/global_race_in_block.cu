//! gemmlab args=x:f32[n],y:f32[n]=empty,z:f32[n]=empty n=128 block=n grid=1
// No barrier between a write to global memory and another thread's read in the same block.
extern "C" __global__ void k(const float* x, float* y, float* z) {
  int t = threadIdx.x;
  y[t] = 2 * x[t];
  z[t] = y[127 - t];  // expect: global race
}
