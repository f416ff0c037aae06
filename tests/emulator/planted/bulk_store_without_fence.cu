//! gemmlab args=y:f32[n]=empty n=64 block=n grid=1
// The copy engine reads stores of threads that no fence made visible to it.
extern "C" __global__ void k(float* y) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  unsigned from = __cvta_generic_to_shared(s);
  s[t] = t;
  __syncthreads();
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(from) : "memory");  // expect: missing fence
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
