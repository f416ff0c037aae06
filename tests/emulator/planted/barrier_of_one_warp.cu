//! gemmlab args=y:f32[n]=empty n=64 block=n grid=1
// Only the first warp reaches the first barrier.
extern "C" __global__ void k(float* y) {
  int t = threadIdx.x;
  if (t < 32) {
    y[t] = 1.0f;
    __syncthreads();
  }
  y[t] = 2.0f;
  __syncthreads();  // expect: divergent barrier
}
