//! gemmlab args=x:f32[n],y:f32[n]=empty n=512 block=64 grid=1
// The copy engine stores from two buffers in turn.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ __align__(16) float s[2][64]; int t = threadIdx.x;
  for (int i = 0; i < 8; ++i) {
    if (t == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    __syncthreads();
    s[i & 1][t] = x[i * 64 + t] * 2;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (t == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y + i * 64), "r"((unsigned)__cvta_generic_to_shared(&s[i & 1][0])) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
