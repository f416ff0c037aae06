//! gemmlab args=part:f32[n]=empty,y:f32[1]=empty,count:u32[1]=zeros n=8 block=64 grid=n
// The block that draws the last ticket adds the values that the other blocks stored.
extern "C" __global__ void k(float* part, float* y, unsigned* count) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    part[blockIdx.x] = blockIdx.x;
    __threadfence();
    is_last = atomicAdd(count, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last || threadIdx.x != 0) return;
  __threadfence();
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; ++i) sum += part[i];
  *y = sum;
  *count = 0;
}
