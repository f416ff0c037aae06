//! gemmlab problem=transpose args=a,b,m,n block=32,8 grid=n/32,m/32

// A 32×32 tile through padded shared memory; a thread moves four elements. Multiples of 32.
extern "C" __global__ void transpose(const float* a, float* b, int m, int n) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = a[(y + i) * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8) b[(y + i) * m + x] = tile[threadIdx.x][threadIdx.y + i];
}
