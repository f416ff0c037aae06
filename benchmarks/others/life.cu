//! gemmlab block=32,8 grid=n/32,n/8 args=y:u8[n*n]=zeros,x:u8[n*n]=ones,n n=4096

// The game of life on a torus: a cell of one byte a thread, its neighbours from shared memory.
extern "C" __global__ void life(unsigned char* y, const unsigned char* x, int n) {
  __shared__ unsigned char cells[10][34];
  const int left = blockIdx.x * 32 - 1, top = blockIdx.y * 8 - 1, t = threadIdx.y * 32 + threadIdx.x;
  for (int i = t; i < 340; i += 256) {
    const int row = (top + i / 34 + n) % n, column = (left + i % 34 + n) % n;
    cells[i / 34][i % 34] = x[row * n + column];
  }
  __syncthreads();
  const int i = threadIdx.y, j = threadIdx.x;
  const int alive = cells[i][j] + cells[i][j + 1] + cells[i][j + 2] + cells[i + 1][j] + cells[i + 1][j + 2] +
                    cells[i + 2][j] + cells[i + 2][j + 1] + cells[i + 2][j + 2];
  y[(top + 1 + i) * n + left + 1 + j] = alive == 3 || (alive == 2 && cells[i + 1][j + 1]);
}
