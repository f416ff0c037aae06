//! gemmlab args=x:f32[n],y:f32[n]=empty,z:f32[n]=empty,c:u32[1]=zeros n=128 block=64 grid=2
// Thread 0 waits for the other block, but the other threads do not wait for thread 0.
extern "C" __global__ void k(const float* x, float* y, float* z, unsigned* c) {
  int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = 2 * x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(c, 1);
    while (atomicAdd(c, 0) < 2) {
    }
    __threadfence();
  }
  z[i] = y[127 - i];  // expect: global race
}
