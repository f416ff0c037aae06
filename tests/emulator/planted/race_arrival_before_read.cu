//! gemmlab args=x:f32[n],y:f32[n]=empty n=256 block=64 grid=1
// The consumers arrive before they read.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[32]; __shared__ unsigned long long full, empty;
  int t = threadIdx.x, w = t / 32, l = t % 32;
  unsigned f = __cvta_generic_to_shared(&full), e = __cvta_generic_to_shared(&empty);
  if (t == 0) { asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(f) : "memory"); asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(e) : "memory"); }
  __syncthreads();
  for (int i = 0; i < 8; ++i) {
    int ph = i & 1;
    if (w == 0) {
      asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W; }" ::"r"(e), "r"(ph ^ 1) : "memory");
      s[l] = x[i * 32 + l];  // expect: shared race
      asm volatile("{ .reg .b64 q; mbarrier.arrive.shared.b64 q, [%0]; }" ::"r"(f) : "memory");
    } else {
      asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W; }" ::"r"(f), "r"(ph) : "memory");
      asm volatile("{ .reg .b64 q; mbarrier.arrive.shared.b64 q, [%0]; }" ::"r"(e) : "memory");
      y[i * 32 + l] = s[31 - l];
    }
  }
}
