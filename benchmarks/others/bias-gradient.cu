//! gemmlab block=32,32 grid=n/32 args=out:f32[n]=zeros,x:f32[m*n],m,n m=8192 n=3072

// Sums of columns: a block adds 32 columns, its 32 warps every 32nd row.
extern "C" __global__ void bias_gradient(float* out, const float* x, int m, int n) {
  __shared__ float sums[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0;
  for (int row = threadIdx.y; row < m; row += 32) sum += x[(size_t)row * n + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  float total = sums[threadIdx.x][threadIdx.y];
  for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(~0u, total, offset);
  if (threadIdx.x == 0) out[blockIdx.x * 32 + threadIdx.y] = total;
}
