//! gemmlab args=x:f32[64],y:f32[32]=empty block=32 grid=1
// The phase expects the bytes of one copy, but two are pending.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ unsigned long long bar;
  __shared__ __align__(128) float a[32], b[32];
  unsigned at = (unsigned)__cvta_generic_to_shared(&bar);
  unsigned to_a = (unsigned)__cvta_generic_to_shared(a), to_b = (unsigned)__cvta_generic_to_shared(b);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" ::"r"(at) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(to_a), "l"(x), "r"(at) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(to_b), "l"(x + 32), "r"(at) : "memory");
  }
  __syncwarp();
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(at) : "memory");
  float v = a[threadIdx.x];
  y[threadIdx.x] = v + b[threadIdx.x];  // expect: shared race
}
