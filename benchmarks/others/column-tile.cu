//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=512 grid=n/64,m/64

// A thread computes eight elements of one column of a 64×64 tile. Sizes are multiples of 64.
extern "C" __global__ void __launch_bounds__(512)
column_tile(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[64 * 8], bs[8 * 64];
  const int column = threadIdx.x % 64, row = threadIdx.x / 64;
  a += blockIdx.y * 64 * k;
  b += blockIdx.x * 64;
  c += blockIdx.y * 64 * n + blockIdx.x * 64;
  float sums[8] = {};
  for (int at = 0; at < k; at += 8) {
    as[threadIdx.x] = a[threadIdx.x / 8 * k + threadIdx.x % 8];
    bs[row * 64 + column] = b[row * n + column];
    __syncthreads();
    a += 8;
    b += 8 * n;
    for (int dot = 0; dot < 8; ++dot) {
      const float x = bs[dot * 64 + column];
      for (int i = 0; i < 8; ++i) sums[i] += as[(row * 8 + i) * 8 + dot] * x;
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i) c[(row * 8 + i) * n + column] = sums[i];
}
