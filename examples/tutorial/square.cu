// C = A·B: a thread computes 8×8 elements.
//! gemmlab problem=gemm args=a,b,c,m,n,k multiple=128,128,8
//! gemmlab block=16,16 grid=n/128,m/128

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[128][8], tile_b[8][128];
  int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  int row = blockIdx.y * 128, col = blockIdx.x * 128;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    for (int i = thread; i < 128 * 8; i += 256) {
      tile_a[i / 8][i % 8] = a[(row + i / 8) * k + k0 + i % 8];
      tile_b[i / 128][i % 128] = b[(k0 + i / 128) * n + col + i % 128];
    }
    __syncthreads();
    for (int i = 0; i < 8; ++i) {
      float own_a[8], own_b[8];
      for (int r = 0; r < 8; ++r) own_a[r] = tile_a[ty * 8 + r][i];
      for (int s = 0; s < 8; ++s) own_b[s] = tile_b[i][tx * 8 + s];
      for (int r = 0; r < 8; ++r)
        for (int s = 0; s < 8; ++s) sum[r][s] += own_a[r] * own_b[s];  // 64 products of 16 numbers
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r)
    for (int s = 0; s < 8; ++s) c[(row + ty * 8 + r) * n + col + tx * 8 + s] = sum[r][s];
}
