//! gemmlab args=x:f32[n],y:f32[n]=empty,z:f32[n]=empty n=64 block=n grid=1
// The target of a bulk store is read before the wait for it.
extern "C" __global__ void k(const float* x, float* y, float* z) {
  __shared__ alignas(16) float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (t == 0) {
    unsigned at = __cvta_generic_to_shared(s);
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(at) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  __syncthreads();
  z[t] = y[t];  // expect: global race
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
