//! gemmlab args=x:f32[32],y:f32[32]=empty block=32 grid=1
// A thread stores to the target of a pending copy.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[32];
  unsigned at = (unsigned)__cvta_generic_to_shared(s + threadIdx.x);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(x + threadIdx.x) : "memory");
  if (threadIdx.x < 4) s[31 - threadIdx.x] = 0;  // expect: missing wait
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncwarp();
  y[threadIdx.x] = s[threadIdx.x];
}
