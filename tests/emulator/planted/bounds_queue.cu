//! gemmlab args=x:u32[n],q:u32[32]=zeros,c:u32[1]=zeros n=64 block=64 grid=1
// More elements are inserted than the queue can hold.
extern "C" __global__ void k(const unsigned* x, unsigned* q, unsigned* c) {
  unsigned p = atomicAdd(c, 1);
  q[p] = x[threadIdx.x];  // expect: out of bounds
}
