//! gemmlab args=x:f32[n],t:f32[n]=empty,y:f32[n]=empty n=64 block=64 grid=1
// The kernel writes to memory that it reads as read-only.
extern "C" __global__ void k(const float* x, float* t, float* y) {
  int i = threadIdx.x;
  t[i] = 2 * x[i];
  __syncthreads();
  y[i] = __ldg(t + 63 - i);  // expect: global race
}
