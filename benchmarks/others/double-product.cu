//! gemmlab block=16,16 grid=n/64,m/64 args=c:f64[m*n]=zeros,a:f64[m*k],b:f64[k*n],m,n,k m=1024 n=1024 k=1024

// Double precision: tiles of 64×64, eight deep, and 4×4 sums of a thread.
extern "C" __global__ void __launch_bounds__(256)
double_product(double* c, const double* a, const double* b, int m, int n, int k) {
  __shared__ double as[8][66], bs[8][66];
  const int t = threadIdx.y * 16 + threadIdx.x;
  double sums[4][4] = {};
  for (int at = 0; at < k; at += 8) {
    for (int i = t; i < 512; i += 256) {
      as[i % 8][i / 8] = a[(blockIdx.y * 64 + i / 8) * k + at + i % 8];
      bs[i / 64][i % 64] = b[(at + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < 8; depth++)
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] += as[depth][threadIdx.y * 4 + i] * bs[depth][threadIdx.x + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) c[(blockIdx.y * 64 + threadIdx.y * 4 + i) * n + blockIdx.x * 64 + threadIdx.x + 16 * j] = sums[i][j];
}
