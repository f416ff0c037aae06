//! gemmlab block=256 grid=n args=y:f32[n*c]=zeros,x:f32[n*c],w:f32[c],n,c n=8192 c=1024

// A block per row: squares are summed by warps and in shared memory, then the row is read again.
extern "C" __global__ void rms_norm(float* y, const float* x, const float* w, int n, int c) {
  __shared__ float parts[8];
  x += (size_t)blockIdx.x * c;
  y += (size_t)blockIdx.x * c;
  float sum = 0;
  for (int i = threadIdx.x; i < c; i += blockDim.x) sum += x[i] * x[i];
  for (int delta = 16; delta; delta /= 2) sum += __shfl_down_sync(~0u, sum, delta);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < 8; i++) sum += parts[i];
  const float scale = rsqrtf(sum / c + 1e-5f);
  for (int i = threadIdx.x; i < c; i += blockDim.x) y[i] = w[i] * (x[i] * scale);
}
