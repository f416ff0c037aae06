//! gemmlab args=x:f32[n],y:f32[n]=empty n=256 block=128 grid=2
// Only the first block has a barrier between the read and the write.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = x[i];
  __syncthreads();
  float v = s[127 - t];
  if (blockIdx.x == 0) __syncthreads();
  s[t] = 2 * v;  // expect: shared race
  __syncthreads();
  y[i] = s[t];
}
