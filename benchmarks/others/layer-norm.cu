//! gemmlab block=512 grid=ceil_div(n*32,512) args=y:f32[n*c]=zeros,x:f32[n*c],w:f32[c],b:f32[c],n,c n=8192 c=768

// A warp normalizes a row: mean, then variance, then the scaled row.
__device__ float total(float x) {
  for (int delta = 16; delta; delta /= 2) x += __shfl_xor_sync(~0u, x, delta);
  return x;
}
extern "C" __global__ void layer_norm(float* y, const float* x, const float* w, const float* b, int n, int c) {
  const int lane = threadIdx.x % 32, row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (row >= n) return;
  x += (size_t)row * c;
  y += (size_t)row * c;
  float sum = 0;
  for (int i = lane; i < c; i += 32) sum += x[i];
  const float mean = total(sum) / c;
  sum = 0;
  for (int i = lane; i < c; i += 32) sum += (x[i] - mean) * (x[i] - mean);
  const float scale = rsqrtf(total(sum) / c + 1e-5f);
  for (int i = lane; i < c; i += 32) __stcs(y + i, scale * (__ldcs(x + i) - mean) * w[i] + b[i]);
}
