//! gemmlab args=x:f32[64],y:f32[128]=empty block=64 grid=2 cluster=2
// Each block of a cluster loads one half for both blocks.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ __align__(16) float s[64]; __shared__ unsigned long long full;
  int t = threadIdx.x; unsigned rank, f = __cvta_generic_to_shared(&full), d = __cvta_generic_to_shared(s);
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (t == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(f) : "memory"); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;" ::: "memory");
  if (t == 0) {
    asm volatile("{ .reg .b64 q; mbarrier.arrive.expect_tx.shared.b64 q, [%0], 256; }" ::"r"(f) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, [%2], %3;" ::"r"(d + 128 * rank), "l"(x + 32 * rank), "r"(f), "h"((unsigned short)3) : "memory");
  }
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(f) : "memory");
  y[blockIdx.x * 64 + t] = s[63 - t];
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
