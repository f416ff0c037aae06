//! gemmlab args=y:u32[n]=empty n=64 block=n grid=1
// All threads write different values to the same word.
extern "C" __global__ void k(unsigned* y) {
  __shared__ unsigned last;
  last = threadIdx.x;  // expect: shared race
  __syncthreads();
  y[threadIdx.x] = last;
}
