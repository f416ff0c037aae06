//! gemmlab args=y:f32[n]=empty n=32 block=n grid=1
// Two halves of a warp wait at different barriers.
extern "C" __global__ void k(float* y) {
  int t = threadIdx.x;
  if (t < 16) {
    y[t] = 1.0f;
    __syncthreads();
  } else {
    y[t] = 2.0f;
    __syncthreads();  // expect: divergent barrier
  }
}
