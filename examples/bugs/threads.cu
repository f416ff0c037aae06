//! gemmlab problem=gemm args=a,b,c,m,n,k m=128 n=128 k=32
//! gemmlab block=32,32 grid=ceil_div(n,64),ceil_div(m,64)

// Tiles of 64×64 for 32×32 threads: every thread stages one element, a quarter of a tile.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[64][16], tile_b[16][64];
  int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 32 + tx;
  int row = blockIdx.y * 64, col = blockIdx.x * 64;
  float sum[2][2] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    if (tx < 16) tile_a[ty][tx] = a[(row + ty) * k + k0 + tx];
    tile_b[thread / 64][thread % 64] = b[(k0 + thread / 64) * n + col + thread % 64];
    __syncthreads();
    for (int i = 0; i < 16; ++i)
      for (int y = 0; y < 2; ++y)
        for (int x = 0; x < 2; ++x) sum[y][x] += tile_a[ty * 2 + y][i] * tile_b[i][tx * 2 + x];
    __syncthreads();
  }
  for (int y = 0; y < 2; ++y)
    for (int x = 0; x < 2; ++x) c[(row + ty * 2 + y) * n + col + tx * 2 + x] = sum[y][x];
}
