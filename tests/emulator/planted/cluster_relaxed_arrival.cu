//! gemmlab args=x:u32[n],y:u32[n]=empty n=128 block=64 grid=2 cluster=2
// A relaxed arrival does not make earlier stores visible.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned s[64];
  int t = threadIdx.x, i = blockIdx.x * 64 + t;
  unsigned at = __cvta_generic_to_shared(s + t), there, value, rank;
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
  s[t] = x[i];
  asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;" ::: "memory");
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(1 - rank));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");  // expect: shared race
  y[i] = value;
  asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}
