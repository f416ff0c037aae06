//! gemmlab block=16,16 grid=n/64,m/64 args=c:i32[m*n]=zeros,a:i32[m*k/4],b:i32[n*k/4],m,n,k m=1024 n=1024 k=1024

// C = A·Bᵀ in eight-bit integers, four products an instruction; a thread has 4×4 sums.
extern "C" __global__ void __launch_bounds__(256)
int8_product(int* c, const int* a, const int* b, int m, int n, int k) {
  __shared__ int as[16][65], bs[16][65];
  const int x = threadIdx.x, y = threadIdx.y, words = k / 4;
  a += blockIdx.y * 64 * words;
  b += blockIdx.x * 64 * words;
  int sums[4][4] = {};
  for (int at = 0; at < words; at += 16) {
    for (int i = 0; i < 4; i++) {
      as[x][y + 16 * i] = a[(y + 16 * i) * words + at + x];
      bs[x][y + 16 * i] = b[(y + 16 * i) * words + at + x];
    }
    __syncthreads();
#pragma unroll
    for (int depth = 0; depth < 16; depth++) {
      int left[4], right[4];
      for (int i = 0; i < 4; i++) left[i] = as[depth][y + 16 * i];
      for (int j = 0; j < 4; j++) right[j] = bs[depth][x + 16 * j];
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] = __dp4a(left[i], right[j], sums[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) c[(blockIdx.y * 64 + y + 16 * i) * n + blockIdx.x * 64 + x + 16 * j] = sums[i][j];
}
