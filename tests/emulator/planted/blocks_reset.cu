//! gemmlab args=n:i32[1]=zeros,y:i32[4]=empty block=1 grid=4
// One block resets a counter that others may already have incremented.
extern "C" __global__ void k(int* n, int* y) {
  if (blockIdx.x == 0) *n = 0;
  y[blockIdx.x] = atomicAdd(n, 1) >= 0;  // expect: global race
}
