//! gemmlab block=16,4 grid=n/128,m/4 args=y:f32[m*n]=zeros,x:f32[m*n],w:f32[17],m,n m=4096 n=4096

// The horizontal part of a separable filter: eight results per thread, a halo on each side.
#define RADIUS 8
extern "C" __global__ void convolution_rows(float* y, const float* x, const float* w, int m, int n) {
  __shared__ float tile[4][(8 + 2) * 16];
  const int first = (blockIdx.x * 8 - 1) * 16 + threadIdx.x, row = blockIdx.y * 4 + threadIdx.y;
  x += row * n + first;
  y += row * n + first;
#pragma unroll
  for (int i = 1; i < 9; i++) tile[threadIdx.y][threadIdx.x + i * 16] = x[i * 16];
  tile[threadIdx.y][threadIdx.x] = first >= 0 ? x[0] : 0;
  tile[threadIdx.y][threadIdx.x + 9 * 16] = n - first > 9 * 16 ? x[9 * 16] : 0;
  __syncthreads();
#pragma unroll
  for (int i = 1; i < 9; i++) {
    float sum = 0;
#pragma unroll
    for (int j = -RADIUS; j <= RADIUS; j++)
      sum += w[RADIUS - j] * tile[threadIdx.y][threadIdx.x + i * 16 + j];
    y[i * 16] = sum;
  }
}
