//! gemmlab args=x:u32[n],y:u32[n]=empty n=64 block=n grid=1
// Two threads of a warp write different values to the same pair of words.
extern "C" __global__ void k(const unsigned* x, uint2* y) {
  int t = threadIdx.x;
  y[t / 2] = make_uint2(t / 2, x[t]);  // expect: order dependent
}
