//! gemmlab args=x:u32[n],y:u32[n]=empty n=128 block=64 grid=2 cluster=2
// Each block waits for the data sent to it, which is the last remote access to its memory.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ alignas(16) unsigned s[64];
  __shared__ unsigned long long full;
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  unsigned f = __cvta_generic_to_shared(&full), at = __cvta_generic_to_shared(s + t), rank, to, signal;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (t == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(f) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("{ .reg .b64 q; mbarrier.arrive.expect_tx.shared.b64 q, [%0], 256; }" ::"r"(f) : "memory");
  }
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(signal) : "r"(f), "r"(1 - rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at), "r"(1 - rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to), "r"(x[i]), "r"(signal) : "memory");
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(f) : "memory");
  y[i] = s[63 - t];
}
