//! gemmlab args=x:f32[n],y:f32[n]=empty n=1024 block=64 grid=1
// A stage is filled again before all consumers have read it.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ __align__(16) float s[2][64];
  __shared__ unsigned long long full[2];
  int t = threadIdx.x;
  if (t == 0) {
    for (int b = 0; b < 2; ++b) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(&full[b])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  for (int i = 0; i < 16; ++i) {
    int b = i & 1, ph = (i >> 1) & 1;
    unsigned f = __cvta_generic_to_shared(&full[b]), d = __cvta_generic_to_shared(&s[b][0]);
    if (t == 0) {
      asm volatile("{ .reg .b64 q; mbarrier.arrive.expect_tx.shared.b64 q, [%0], 256; }" ::"r"(f) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(d), "l"(x + i * 64), "r"(f) : "memory");  // expect: shared race
    }
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W; }" ::"r"(f), "r"(ph) : "memory");
    y[i * 64 + t] = s[b][63 - t];
  }
}
