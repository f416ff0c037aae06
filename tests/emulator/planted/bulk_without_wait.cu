//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// A bulk copy is started, but no thread waits for the mbarrier.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float s[64];
  __shared__ unsigned long long full;
  int t = threadIdx.x;
  unsigned at = __cvta_generic_to_shared(&full), to = __cvta_generic_to_shared(s);
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], 256; }" ::"r"(at) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to), "l"(x), "r"(at) : "memory");
  }
  __syncthreads();
  y[t] = s[t];  // expect: missing wait
}
