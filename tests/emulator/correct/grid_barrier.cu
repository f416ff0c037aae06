//! gemmlab args=part:f32[n]=empty,y:f32[n]=empty,count:u32[1]=zeros n=8 block=32 grid=n
// A grid-wide barrier on a counter.
extern "C" __global__ void k(float* part, float* y, unsigned* count) {
  if (threadIdx.x == 0) {
    part[blockIdx.x] = blockIdx.x;
    __threadfence();
    atomicAdd(count, 1);
    while (*(volatile unsigned*)count != gridDim.x) {
    }
    __threadfence();
    y[blockIdx.x] = part[gridDim.x - 1 - blockIdx.x];
  }
}
