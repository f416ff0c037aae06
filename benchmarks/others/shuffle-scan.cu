//! gemmlab block=256 grid=n/256 args=x:f32[n],y:f32[n]=zeros,t:f32[n/256]=zeros n=16777216

// Inclusive scan of 256 elements per block: by shuffles in warps, then over the warps' sums.
extern "C" __global__ void shuffle_scan(const float* x, float* y, float* t) {
  __shared__ float sums[8];
  const int i = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float value = x[i];
  for (int step = 1; step < 32; step *= 2) {
    const float other = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value += other;
  }
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  if (warp == 0 && lane < 8) {
    float sum = sums[lane];
    for (int step = 1; step < 8; step *= 2) {
      const float other = __shfl_up_sync(0xff, sum, step);
      if (lane >= step) sum += other;
    }
    sums[lane] = sum;
  }
  __syncthreads();
  if (warp > 0) value += sums[warp - 1];
  y[i] = value;
  if (threadIdx.x == 255) t[blockIdx.x] = value;
}
