//! gemmlab args=x:f32[n],y:f32[n]=empty,f:u32[1]=zeros,buf:f32[32]=empty n=32 block=32 grid=2
// A flag signals that the data is ready, without a fence in between.
extern "C" __global__ void k(const float* x, float* y, volatile unsigned* f, float* buf) {
  int t = threadIdx.x;
  if (blockIdx.x == 0) {
    buf[t] = x[t];
    __syncthreads();
    if (t == 0) *f = 1;
  } else {
    if (t == 0) while (!*f) {}
    __syncthreads();
    y[t] = buf[31 - t];  // expect: global race
  }
}
