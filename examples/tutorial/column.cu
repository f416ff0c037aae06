// C = A·B: a thread computes a column of 8 elements.
//! gemmlab problem=gemm args=a,b,c,m,n,k multiple=64,64,8
//! gemmlab block=64,8 grid=n/64,m/64

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[64][8], tile_b[8][64];
  int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 64 + tx;
  int row = blockIdx.y * 64, col = blockIdx.x * 64;
  float sum[8] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    tile_a[thread / 8][thread % 8] = a[(row + thread / 8) * k + k0 + thread % 8];
    tile_b[ty][tx] = b[(k0 + ty) * n + col + tx];
    __syncthreads();
    for (int i = 0; i < 8; ++i) {
      float own_b = tile_b[i][tx];  // read once, used 8 times
      for (int r = 0; r < 8; ++r) sum[r] += tile_a[ty * 8 + r][i] * own_b;
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r) c[(row + ty * 8 + r) * n + col + tx] = sum[r];
}
