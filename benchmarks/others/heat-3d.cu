//! gemmlab block=32,16 grid=n/32,n/16 args=y:f32[n*n*n]=zeros,x:f32[n*n*n],n n=256

// Seven points of a cube: a block walks through the planes, three of which its threads keep.
extern "C" __global__ void heat_3d(float* y, const float* x, int n) {
  __shared__ float plane[18][34];
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  const int i = threadIdx.y + 1, j = threadIdx.x + 1, size = n * n, last = n - 1;
  int at = row * n + column;
  float behind = 0, here = x[at], ahead = x[at + size];
  for (int z = 1; z < n - 1; z++) {
    behind = here;
    here = ahead;
    at += size;
    ahead = x[at + size];
    __syncthreads();
    plane[i][j] = here;
    if (threadIdx.y == 0) plane[0][j] = row > 0 ? x[at - n] : 0;
    if (threadIdx.y == 15) plane[17][j] = row < last ? x[at + n] : 0;
    if (threadIdx.x == 0) plane[i][0] = column > 0 ? x[at - 1] : 0;
    if (threadIdx.x == 31) plane[i][33] = column < last ? x[at + 1] : 0;
    __syncthreads();
    y[at] = 0.4f * here + 0.1f * (behind + ahead + plane[i - 1][j] + plane[i + 1][j] + plane[i][j - 1] + plane[i][j + 1]);
  }
}
