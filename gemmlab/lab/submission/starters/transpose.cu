// B = Aᵀ in float32. One thread moves one element.
//! gemmlab problem=transpose entry=transpose args=a,b,m,n
//! gemmlab block=32,8 grid=ceil_div(n,32),ceil_div(m,8)

// a is (m, n), b is (n, m), both row-major.
extern "C" __global__ void transpose(const float* a, float* b, int m, int n) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < m && col < n) b[(long long)col * m + row] = a[(long long)row * n + col];
}
