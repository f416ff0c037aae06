//! gemmlab args=x:u32[n],y:u32[4]=empty n=64 block=n grid=1
// Counts without atomic operations.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned bins[4];
  int t = threadIdx.x;
  if (t < 4) bins[t] = 0;
  __syncthreads();
  bins[x[t] % 4] += 1;  // expect: shared race
  __syncthreads();
  if (t < 4) y[t] = bins[t];
}
