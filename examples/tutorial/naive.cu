// C = A·B: one thread per element of C.
//! gemmlab problem=gemm args=a,b,c,m,n,k
//! gemmlab block=32,32 grid=ceil_div(n,32),ceil_div(m,32)

extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  int row = blockIdx.y * 32 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}
