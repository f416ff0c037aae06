//! gemmlab block=32,8 grid=n/32,m/8 args=y:f32[m*n]=zeros,x:f32[m*n],m,n m=8192 n=8192

// A step of Jacobi's method: the mean of four neighbours, from global memory.
extern "C" __global__ void stencil(float* y, const float* x, int m, int n) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
  if (i == 0 || j == 0 || i == m - 1 || j == n - 1) return;
  y[i * n + j] = 0.25f * (x[(i - 1) * n + j] + x[(i + 1) * n + j] + x[i * n + j - 1] + x[i * n + j + 1]);
}
