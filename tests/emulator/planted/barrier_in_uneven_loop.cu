//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=64 grid=1
// Warps execute different numbers of iterations of a loop with a barrier.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  for (int i = 0; i < (t < 32 ? 2 : 3); ++i) { __syncthreads(); s[t] += 1; }  // expect: divergent barrier
  y[t] = s[t];
}
