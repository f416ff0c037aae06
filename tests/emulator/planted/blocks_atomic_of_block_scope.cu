//! gemmlab args=x:u32[n],y:u32[1]=zeros n=256 block=64 grid=4
// The atomic operation has block scope, but other blocks add to the same word.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  atomicAdd_block(y, x[blockIdx.x * 64 + threadIdx.x]);  // expect: global race
}
