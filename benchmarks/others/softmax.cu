//! gemmlab block=256 grid=n args=y:f32[n*c]=zeros,x:f32[n*c],n,c n=8192 c=2048

// A block per row: maximum, sum of exponentials, quotient.
extern "C" __global__ void softmax(float* y, const float* x, int n, int c) {
  __shared__ float parts[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x += (size_t)blockIdx.x * c;
  y += (size_t)blockIdx.x * c;
  float most = -1e30f;
  for (int i = threadIdx.x; i < c; i += 256) most = fmaxf(most, x[i]);
  for (int delta = 16; delta; delta /= 2) most = fmaxf(most, __shfl_down_sync(~0u, most, delta));
  if (lane == 0) parts[warp] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; i++) most = fmaxf(most, parts[i]);
    parts[0] = most;
  }
  __syncthreads();
  most = parts[0];
  for (int i = threadIdx.x; i < c; i += 256) y[i] = expf(x[i] - most);
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < c; i += 256) sum += y[i];
  for (int delta = 16; delta; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; i++) sum += parts[i];
    parts[0] = sum;
  }
  __syncthreads();
  sum = parts[0];
  for (int i = threadIdx.x; i < c; i += 256) y[i] = y[i] / sum;
}
