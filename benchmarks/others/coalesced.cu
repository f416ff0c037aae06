//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=1024 grid=ceil_div(m,32),ceil_div(n,32)

// A block of 1024 threads in one dimension computes a 32×32 tile; consecutive threads share a row.
extern "C" __global__ void coalesced(const float* a, const float* b, float* c, int m, int n, int k) {
  const int row = blockIdx.x * 32 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
  if (row < m && column < n) {
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = sum;
  }
}
