//! gemmlab args=x:f32[4*n],y:f32[n]=empty n=64 block=n grid=1
// The copy for the next step overwrites a stage that other warps still read.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  float sum = 0.0f;
  unsigned to = __cvta_generic_to_shared(s + t);
  for (int i = 0; i < 4; ++i) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + 64 * i + t) : "memory");  // expect: shared race
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    sum += s[63 - t];
  }
  y[t] = sum;
}
