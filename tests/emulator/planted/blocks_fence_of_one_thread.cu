//! gemmlab args=x:f32[n],y:f32[n]=empty,z:f32[n]=empty,c:u32[1]=zeros n=128 block=64 grid=2
// The fence of thread 0 does not cover the recent writes of the other threads.
extern "C" __global__ void k(const float* x, float* y, float* z, unsigned* c) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = 2 * x[i];
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(c, 1);
    while (atomicAdd(c, 0) < 2) {
    }
    __threadfence();
  }
  __syncthreads();
  z[i] = y[127 - i];  // expect: global race
}
