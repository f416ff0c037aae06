//! gemmlab args=x:u32[n],y:u32[n]=empty n=64 block=n grid=1
// All threads write the same value to one word, which is not a race.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned found;
  int t = threadIdx.x;
  found = 0;
  __syncthreads();
  if (x[t] > 1) found = 1;
  y[t] = __syncthreads_or(x[t] > 1000) + found;
}
