//! gemmlab args=x:f32[n],y:f32[32]=zeros,f:u32[1]=zeros n=128 block=32 grid=4
// Blocks add to a result in turn, with acquire and release.
extern "C" __global__ void k(const float* x, float* y, unsigned* f) {
  int t = threadIdx.x, b = blockIdx.x;
  if (t == 0) { unsigned v; do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(f) : "memory"); while (v != b); }
  __syncthreads();
  y[t] += x[b * 32 + t];
  __syncthreads();
  if (t == 0) { __threadfence(); asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(f) : "memory"); }
}
