//! gemmlab block=32,8 grid=n args=c:f32[n*1024]=zeros,a:f32[n*1024],b:f32[n*1024] n=4096

// Many products of 32×32 matrices, one by each block.
extern "C" __global__ void batched_small(float* c, const float* a, const float* b) {
  __shared__ float as[32][32], bs[32][32];
  const int x = threadIdx.x, y = threadIdx.y;
  const size_t first = (size_t)blockIdx.x * 1024;
  for (int i = y; i < 32; i += 8) {
    as[i][x] = a[first + i * 32 + x];
    bs[i][x] = b[first + i * 32 + x];
  }
  __syncthreads();
  float sums[4] = {};
  for (int k = 0; k < 32; k++)
    for (int i = 0; i < 4; i++) sums[i] += as[y + 8 * i][k] * bs[k][x];
  for (int i = 0; i < 4; i++) c[first + (y + 8 * i) * 32 + x] = sums[i];
}
