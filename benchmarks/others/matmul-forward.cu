//! gemmlab block=16,16 grid=m/128,n/128 args=y:f32[m*n]=zeros,x:f32[m*k],w:f32[n*k],b:f32[n],k,n m=1024 n=1024 k=1024

// Rows times rows of weights plus a bias: 8×8 per thread, tiles of depth 32 in shared memory.
extern "C" __global__ void __launch_bounds__(256, 2)
matmul_forward(float* y, const float* x, const float* w, const float* b, int k, int n) {
  __shared__ float xs[128][32], ws[128][32];
  const int column = 8 * (blockIdx.y * blockDim.y + threadIdx.y);
  x += (size_t)128 * blockIdx.x * k;
  w += (size_t)128 * blockIdx.y * k;
  y += (size_t)128 * blockIdx.x * n + 128 * blockIdx.y;
  float sums[8][8];
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) sums[i][j] = b[column + j];
  const int start = 4 * (16 * threadIdx.y + threadIdx.x);
  for (int at = 0; at < k; at += 32) {
    __syncthreads();
    const int part = start % 32;
    for (int i = start / 32; i < 128; i += 32) {
      *(float4*)&xs[i][part] = *(const float4*)(x + (size_t)i * k + at + part);
      *(float4*)&ws[i][part] = *(const float4*)(w + (size_t)i * k + at + part);
    }
    __syncthreads();
    for (int step = 4 * threadIdx.x; step < 4 * threadIdx.x + 32; step += 4) {
      float4 right[8];
      for (int j = 0; j < 8; j++) right[j] = *(float4*)&ws[j + 8 * threadIdx.y][step % 32];
      for (int i = 0; i < 8; i++) {
        const float4 left = *(float4*)&xs[i + 8 * threadIdx.x][step % 32];
        for (int j = 0; j < 8; j++)
          sums[i][j] += left.x * right[j].x + left.y * right[j].y + left.z * right[j].z + left.w * right[j].w;
      }
    }
  }
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j += 4)
      *(float4*)(y + (size_t)(8 * threadIdx.x + i) * n + 8 * threadIdx.y + j) =
          make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
}
