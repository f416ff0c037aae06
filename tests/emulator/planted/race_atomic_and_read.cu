//! gemmlab args=x:u32[n],y:u32[1]=empty n=128 block=n grid=1
// The sum is read while other threads still add to it.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned sum;
  int t = threadIdx.x;
  if (t == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, x[t]);
  if (t == 0) y[0] = sum;  // expect: shared race
}
