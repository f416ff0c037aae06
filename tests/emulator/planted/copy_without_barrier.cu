//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// Each thread waits for its own copy but reads another thread's.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + t) : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  y[t] = s[63 - t];  // expect: shared race
}
