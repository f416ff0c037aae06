//! gemmlab args=x:f32[n],y:f32[n]=empty,c:u32[1]=zeros n=512 block=64 grid=2
// Blocks fetch tiles until none are left.
extern "C" __global__ void k(const float* x, float* y, unsigned* c) {
  __shared__ unsigned tile;
  while (true) {
    if (threadIdx.x == 0) tile = atomicAdd(c, 1);
    __syncthreads();
    unsigned mine = tile;
    __syncthreads();
    if (mine >= 8) return;
    y[mine * 64 + threadIdx.x] = x[mine * 64 + threadIdx.x];
  }
}
