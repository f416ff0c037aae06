//! gemmlab args=x:f32[2*n],y:f32[n]=empty n=64 block=n grid=1
// Of two groups, the wait leaves one pending, and that one is read.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[2][64];
  int t = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    unsigned to = __cvta_generic_to_shared(&s[i][t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + 64 * i + t));
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
  y[t] = s[1][63 - t];  // expect: missing wait
}
