// C = A·B in float32. One thread computes one element of C.
//! gemmlab problem=gemm entry=sgemm args=a,b,c,m,n,k layout=row
//! gemmlab block=32,8 grid=ceil_div(n,32),ceil_div(m,8)

// a is (m, k), b is (k, n), c is (m, n), all row-major.
extern "C" __global__ void sgemm(const float* a, const float* b, float* c, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) {
    sum += a[(long long)row * k + i] * b[(long long)i * n + col];
  }
  c[(long long)row * n + col] = sum;
}
