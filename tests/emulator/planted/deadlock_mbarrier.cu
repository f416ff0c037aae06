//! gemmlab args=y:u32[n]=empty n=32 block=n grid=1
// The mbarrier expects 33 arrivals and receives 32.
extern "C" __global__ void k(unsigned* y) {
  __shared__ unsigned long long full;
  unsigned at = __cvta_generic_to_shared(&full);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 33;" ::"r"(at) : "memory");
  __syncthreads();
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W; }" ::"r"(at) : "memory");  // expect: deadlock
  y[threadIdx.x] = 1;
}
