//! gemmlab args=x:u32[n],y:u32[1]=arange n=64 block=n grid=2
// One block clears a word to which others may already have added.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  if (threadIdx.x == 0 && blockIdx.x == 0) y[0] = 0;
  __syncthreads();
  atomicAdd(y, x[threadIdx.x]);  // expect: global race
}
