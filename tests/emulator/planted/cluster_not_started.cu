//! gemmlab args=x:u32[n],y:u32[n]=empty n=256 block=64 grid=4 cluster=2
// A store to the other block's shared memory without waiting until that block has started.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned s[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  unsigned at = __cvta_generic_to_shared(s + t), there, rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(1 - rank));
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there), "r"(x[i]) : "memory");  // expect: cluster lifetime
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  y[i] = s[t];
}
