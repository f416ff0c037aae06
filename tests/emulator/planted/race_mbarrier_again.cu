//! gemmlab args=x:f32[n],y:f32[n]=empty n=128 block=64 grid=1
// The mbarrier is initialized again while other threads may still wait at it.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[2][64];
  __shared__ unsigned long long done;
  int t = threadIdx.x;
  unsigned at = __cvta_generic_to_shared(&done);
  for (int i = 0; i < 2; ++i) {
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");  // expect: shared race
    __syncthreads();
    s[i][t] = x[i * 64 + t];
    asm volatile("{ .reg .b64 q; mbarrier.arrive.shared.b64 q, [%0]; }" ::"r"(at) : "memory");
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(at) : "memory");
    y[i * 64 + t] = s[i][63 - t];
  }
}
