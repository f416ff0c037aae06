//! gemmlab block=16,4 grid=n/128,m/4 args=y:f32[m*n]=zeros,x:f32[m*n],f:f32[17],m,n m=4096 n=4096

// The rows of a separable convolution with 17 taps; a thread computes eight elements.
extern "C" __global__ void rows(float* y, const float* x, const float* f, int m, int n) {
  __shared__ float tile[4][160];
  const int first = (blockIdx.x * 8 - 1) * 16 + threadIdx.x, row = blockIdx.y * 4 + threadIdx.y;
  x += row * n + first;
  y += row * n + first;
#pragma unroll
  for (int i = 1; i < 9; i++) tile[threadIdx.y][threadIdx.x + i * 16] = x[i * 16];
  tile[threadIdx.y][threadIdx.x] = first >= 0 ? x[0] : 0;
  tile[threadIdx.y][threadIdx.x + 144] = n - first > 144 ? x[144] : 0;
  __syncthreads();
#pragma unroll
  for (int i = 1; i < 9; i++) {
    float sum = 0;
#pragma unroll
    for (int j = -8; j <= 8; j++) sum += f[8 - j] * tile[threadIdx.y][threadIdx.x + i * 16 + j];
    y[i * 16] = sum;
  }
}
