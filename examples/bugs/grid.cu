//! gemmlab problem=gemm args=a,b,c,m,n,k m=128 n=128 k=16
//! gemmlab block=16,16 grid=ceil_div(n,16),ceil_div(m,16)

// A thread computes 4×4 elements, but the grid has a thread for each element.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  int row = (blockIdx.y * 16 + threadIdx.y) * 4, col = (blockIdx.x * 16 + threadIdx.x) * 4;
  float sum[4][4] = {};
  for (int i = 0; i < k; ++i)
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 4; ++x) sum[y][x] += a[(row + y) * k + i] * b[i * n + col + x];
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 4; ++x) c[(row + y) * n + col + x] = sum[y][x];
}
