//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// Adds to an output that is not initialized.
extern "C" __global__ void k(const float* x, float* y) {
  int t = threadIdx.x;
  y[t] += x[t];  // expect: uninitialized read
}
