//! gemmlab args=x:f32[8*n],y:f32[n]=empty n=64 block=n grid=1
// cp.async in a pipeline of three stages.
__device__ void load(float* to, const float* from) {
  unsigned at = __cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float tile[3][64];
  int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 2; ++i) {
    load(&tile[i][t], x + 64 * i + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int i = 0; i < 8; ++i) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    if (i + 2 < 8) load(&tile[(i + 2) % 3][t], x + 64 * (i + 2) + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
    sum += tile[i % 3][63 - t];
  }
  y[t] = sum;
}
