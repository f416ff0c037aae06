//! gemmlab args=y:f32[n]=empty n=64 block=n grid=1
// Shared memory changes while the copy engine still reads it.
extern "C" __global__ void k(float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  unsigned from = __cvta_generic_to_shared(s);
  s[t] = 1.0f;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(from) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  __syncthreads();
  s[t] = 2.0f;  // expect: missing wait
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
