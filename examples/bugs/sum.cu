//! gemmlab problem=gemm args=a,b,c,m,n,k m=64 n=64 k=64
//! gemmlab block=16,16 grid=ceil_div(n,16),ceil_div(m,16)

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float sum[2];  // the first is never set to 0
  sum[1] = 0;
  for (int i = 0; i < k; ++i) sum[i % 2] += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum[0] + sum[1];
}
