//! gemmlab args=y:u32[1]=empty block=64 grid=1
// The counter is not initialized.
extern "C" __global__ void k(unsigned* y) {
  __shared__ unsigned count;
  atomicAdd(&count, 1);  // expect: uninitialized read
  __syncthreads();
  if (threadIdx.x == 0) y[0] = count;
}
