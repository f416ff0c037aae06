// C = A·B: a block keeps a tile of A and of B in shared memory.
//! gemmlab problem=gemm args=a,b,c,m,n,k
//! gemmlab block=32,32 grid=ceil_div(n,32),ceil_div(m,32)

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[32][32], tile_b[32][32];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * 32 + ty, col = blockIdx.x * 32 + tx;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += 32) {
    tile_a[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0;
    tile_b[ty][tx] = k0 + ty < k && col < n ? b[(k0 + ty) * n + col] : 0;
    __syncthreads();  // the tiles are complete
    for (int i = 0; i < 32; ++i) sum += tile_a[ty][i] * tile_b[i][tx];
    __syncthreads();  // all reads are complete
  }
  if (row < m && col < n) c[row * n + col] = sum;
}
