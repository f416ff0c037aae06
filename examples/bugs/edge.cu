//! gemmlab problem=gemm args=a,b,c,m,n,k m=64 n=64 k=20
//! gemmlab block=16,16 grid=ceil_div(n,16),ceil_div(m,16)

// The last tile of k is only partly inside the matrices.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int k0 = 0; k0 < k; k0 += 16) {
    tile_a[ty][tx] = a[row * k + k0 + tx];
    tile_b[ty][tx] = b[(k0 + ty) * n + col];
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += tile_a[ty][i] * tile_b[i][tx];
    __syncthreads();
  }
  c[row * n + col] = sum;
}
