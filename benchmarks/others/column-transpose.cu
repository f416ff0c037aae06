//! gemmlab block=64,4 grid=n/64,m/64 args=y:f32[m*n]=zeros,x:f32[m*n],m,n m=8192 n=8192

// A tile of 64×64 per block of 256 threads: rows in, columns out, sixteen elements per thread.
extern "C" __global__ void column_transpose(float* y, const float* x, int m, int n) {
  __shared__ float tile[64][65];
  const int column = blockIdx.x * 64, row = blockIdx.y * 64;
#pragma unroll
  for (int i = threadIdx.y; i < 64; i += 4) tile[i][threadIdx.x] = x[(size_t)(row + i) * n + column + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.y; i < 64; i += 4) y[(size_t)(column + i) * m + row + threadIdx.x] = tile[threadIdx.x][i];
}
