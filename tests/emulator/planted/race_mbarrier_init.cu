//! gemmlab args=y:u32[n]=empty n=64 block=n grid=1
// Threads use the mbarrier without waiting for its initialization.
extern "C" __global__ void k(unsigned* y) {
  __shared__ unsigned long long full;
  unsigned at = __cvta_generic_to_shared(&full);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
  __syncwarp();
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");  // expect: shared race
  y[threadIdx.x] = 1;
}
