//! gemmlab args=x:u32[n],y:u32[8]=zeros n=512 block=128 grid=4
// Atomic counts in shared memory, then in global memory.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned bins[8];
  int t = threadIdx.x;
  if (t < 8) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[x[128 * blockIdx.x + t] % 8], 1);
  __syncthreads();
  if (t < 8) atomicAdd(&y[t], bins[t]);
}
