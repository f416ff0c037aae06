//! gemmlab args=x:f32[n],total:f32[1]=zeros,y:f32[n]=empty n=256 block=64 grid=4
// Each block uses a total to which other blocks still add.
extern "C" __global__ void k(const float* x, float* total, float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  atomicAdd(total, x[i]);
  __syncthreads();
  y[i] = x[i] / *total;  // expect: global race
}
