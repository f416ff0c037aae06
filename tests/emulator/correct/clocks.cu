//! gemmlab args=x:f32[n],y:f32[n]=empty,t:u64[n]=empty,e:u64[n]=empty n=256 block=64 grid=4
// The kernel times itself, so its results depend on the order of warps.
extern "C" __global__ void k(const float* x, float* y, long long* t, unsigned long long* e) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  long long start = clock64();
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  y[i] = 2 * x[i];
  __syncthreads();
  t[i] = clock64() - start + clock();
  e[i] = now;
}
