//! gemmlab args=x:u32[n],y:u32[1]=zeros n=4 block=1 grid=n
// Every block adds to the same word, without an atomic operation.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  *y += x[blockIdx.x] + 1;  // expect: global race
}
