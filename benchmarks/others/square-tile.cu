//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=256 grid=n/128,m/128

// A thread computes 8×8 elements of a 128×128 tile, with scalar loads. Sizes: multiples of 128.
extern "C" __global__ void __launch_bounds__(256, 1)
square_tile(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[128 * 8], bs[8 * 128];
  const int column = threadIdx.x % 16, row = threadIdx.x / 16;
  a += blockIdx.y * 128 * k;
  b += blockIdx.x * 128;
  c += blockIdx.y * 128 * n + blockIdx.x * 128;
  const int row_a = threadIdx.x / 8, column_a = threadIdx.x % 8;
  const int row_b = threadIdx.x / 128, column_b = threadIdx.x % 128;
  float sums[64] = {}, x[8], y[8];
  for (int at = 0; at < k; at += 8) {
    for (int i = 0; i < 128; i += 32) as[(row_a + i) * 8 + column_a] = a[(row_a + i) * k + column_a];
    for (int i = 0; i < 8; i += 2) bs[(row_b + i) * 128 + column_b] = b[(row_b + i) * n + column_b];
    __syncthreads();
    a += 8;
    b += 8 * n;
    for (int dot = 0; dot < 8; ++dot) {
      for (int i = 0; i < 8; ++i) x[i] = as[(row * 8 + i) * 8 + dot];
      for (int j = 0; j < 8; ++j) y[j] = bs[dot * 128 + column * 8 + j];
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) sums[i * 8 + j] += x[i] * y[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) c[(row * 8 + i) * n + column * 8 + j] = sums[i * 8 + j];
}
