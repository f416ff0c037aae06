//! gemmlab block=256 grid=1024 args=x:f32[n],y:f32[1024]=zeros,n n=67108864

// Each thread sums many pairs of elements, a block its threads' sums; one number per block.
extern "C" __global__ void reduce(const float* x, float* y, unsigned n) {
  __shared__ float sums[32];
  const unsigned grid = 512 * gridDim.x;
  float sum = 0;
  for (unsigned i = blockIdx.x * 512 + threadIdx.x; i < n; i += grid) {
    sum += x[i];
    if (i + 256 < n) sum += x[i + 256];
  }
  for (int delta = 16; delta; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < 8 ? sums[threadIdx.x] : 0;
    for (int delta = 4; delta; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
  }
}
