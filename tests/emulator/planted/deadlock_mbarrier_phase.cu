//! gemmlab args=x:f32[n],y:f32[n]=empty n=32 block=2*n grid=1
// The consumers wait with the wrong parity.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ unsigned long long full;
  __shared__ float s[32];
  int t = threadIdx.x;
  unsigned at = __cvta_generic_to_shared(&full);
  if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
  __syncthreads();
  if (t < 32) {
    s[t] = x[t];
    asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
  } else {
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 1; @!p bra W; }" ::"r"(at) : "memory");  // expect: deadlock
    y[t - 32] = s[t - 32];
  }
}
