//! gemmlab args=x:f32[n],y:f32[n]=empty n=128 block=n grid=1
// No barrier between a write and another thread's read.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  y[t] = s[127 - t];  // expect: shared race
}
