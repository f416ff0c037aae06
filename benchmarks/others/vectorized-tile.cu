//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=256 grid=n/128,m/128

// As square-tile.cu, with loads of four words and the tile of A transposed in shared memory.
extern "C" __global__ void __launch_bounds__(256)
vectorized_tile(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[8 * 128], bs[8 * 128];
  const int column = threadIdx.x % 16, row = threadIdx.x / 16;
  a += blockIdx.y * 128 * k;
  b += blockIdx.x * 128;
  c += blockIdx.y * 128 * n + blockIdx.x * 128;
  const int row_a = threadIdx.x / 2, column_a = threadIdx.x % 2 * 4;
  const int row_b = threadIdx.x / 32, column_b = threadIdx.x % 32 * 4;
  float sums[64] = {}, x[8], y[8];
  for (int at = 0; at < k; at += 8) {
    const float4 from_a = *(const float4*)(a + row_a * k + column_a);
    as[(column_a + 0) * 128 + row_a] = from_a.x;
    as[(column_a + 1) * 128 + row_a] = from_a.y;
    as[(column_a + 2) * 128 + row_a] = from_a.z;
    as[(column_a + 3) * 128 + row_a] = from_a.w;
    *(float4*)(bs + row_b * 128 + column_b) = *(const float4*)(b + row_b * n + column_b);
    __syncthreads();
    a += 8;
    b += 8 * n;
    for (int dot = 0; dot < 8; ++dot) {
      for (int i = 0; i < 8; ++i) x[i] = as[dot * 128 + row * 8 + i];
      for (int j = 0; j < 8; ++j) y[j] = bs[dot * 128 + column * 8 + j];
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) sums[i * 8 + j] += x[i] * y[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; j += 4)
      *(float4*)(c + (row * 8 + i) * n + column * 8 + j) =
          make_float4(sums[i * 8 + j], sums[i * 8 + j + 1], sums[i * 8 + j + 2], sums[i * 8 + j + 3]);
}
