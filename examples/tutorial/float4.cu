// C = A·B: a thread computes 8×8 elements and loads and stores four at a time.
//! gemmlab problem=gemm args=a,b,c,m,n,k multiple=128,128,8
//! gemmlab block=16,16 grid=n/128,m/128

__device__ float4& four(const float& x) { return *(float4*)&x; }

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) float tile_a[8][132], tile_b[8][128];  // A transposed; padded rows
  int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
  int row = blockIdx.y * 128, col = blockIdx.x * 128;
  float sum[8][8] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    int r = thread / 2, i = thread % 2 * 4;
    float4 own = four(a[(row + r) * k + k0 + i]);
    tile_a[i][r] = own.x, tile_a[i + 1][r] = own.y, tile_a[i + 2][r] = own.z, tile_a[i + 3][r] = own.w;
    int j = thread / 32, s = thread % 32 * 4;
    four(tile_b[j][s]) = four(b[(k0 + j) * n + col + s]);
    __syncthreads();
    for (int i = 0; i < 8; ++i) {
      float own_a[8], own_b[8];
      for (int r = 0; r < 8; r += 4) four(own_a[r]) = four(tile_a[i][ty * 8 + r]);
      for (int s = 0; s < 8; s += 4) four(own_b[s]) = four(tile_b[i][tx * 4 + s * 16]);
      for (int r = 0; r < 8; ++r)
        for (int s = 0; s < 8; ++s) sum[r][s] += own_a[r] * own_b[s];
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r)
    for (int s = 0; s < 8; s += 4)
      four(c[(row + ty * 8 + r) * n + col + tx * 4 + s * 16]) = four(sum[r][s]);
}
