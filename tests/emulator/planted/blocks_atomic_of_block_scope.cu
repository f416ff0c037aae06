//! gemmlab args=x:u32[n],y:u32[1]=zeros n=256 block=64 grid=4
// Atomic for the threads of a block only, and other blocks add too.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  atomicAdd_block(y, x[blockIdx.x * 64 + threadIdx.x]);  // expect: global race
}
