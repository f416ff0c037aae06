//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// cp.async and a barrier, but no wait for the copy.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");
  __syncthreads();
  y[t] = s[63 - t];  // expect: missing wait
}
