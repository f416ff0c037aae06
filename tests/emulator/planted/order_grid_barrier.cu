//! gemmlab args=x:f32[n],y:f32[n]=zeros,z:f32[n]=empty,c:u32[1]=zeros n=256 block=64 grid=4
// The barrier opens when all blocks but one have arrived.
extern "C" __global__ void k(const float* x, float* y, float* z, unsigned* c) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = 2 * x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(c, 1);
    while (atomicAdd(c, 0) < gridDim.x - 1) {
    }
    __threadfence();
  }
  __syncthreads();
  z[i] = y[255 - i];  // expect: order dependent
}
