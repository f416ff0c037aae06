//! gemmlab args=x:f32[8*n],y:f32[n]=empty n=32 block=2*n grid=1
// A producer warp and a consumer warp with two stages, each with a full and an empty mbarrier.
__device__ void init(unsigned at) {
  asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at) : "memory");
}
__device__ void arrive(unsigned at) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(at) : "memory");
}
__device__ void wait(unsigned at, unsigned parity) {
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W; }" ::"r"(at), "r"(parity) : "memory");
}
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ unsigned long long barrier[4];
  __shared__ float s[2][32];
  int t = threadIdx.x, lane = t % 32;
  unsigned full = __cvta_generic_to_shared(barrier), empty = full + 16;
  if (t < 4) init(full + 8 * t);
  __syncthreads();
  if (t < 32) {
    for (int i = 0; i < 8; ++i) {
      if (i >= 2) wait(empty + 8 * (i % 2), (i / 2 - 1) % 2);
      s[i % 2][lane] = x[32 * i + lane];
      arrive(full + 8 * (i % 2));
    }
  } else {
    float sum = 0.0f;
    for (int i = 0; i < 8; ++i) {
      wait(full + 8 * (i % 2), i / 2 % 2);
      sum += s[i % 2][31 - lane];
      arrive(empty + 8 * (i % 2));
    }
    y[lane] = sum;
  }
}
