//! gemmlab args=x:f32[n],y:f32[n]=empty,n n=70 block=128 grid=1
// Threads past the end exit before the barrier.
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ float s[128];
  int t = threadIdx.x;
  if (t >= n) return;
  s[t] = x[t];
  __syncthreads();  // expect: divergent barrier
  y[t] = s[n - 1 - t];
}
