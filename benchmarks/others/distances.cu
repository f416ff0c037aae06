//! gemmlab block=16,16 grid=n/16,n/16 args=d:f32[n*n]=zeros,x:f32[n*c],n,c n=2048 c=64

// Squared distances of all pairs of points, by tiles of 16×16 in shared memory.
extern "C" __global__ void distances(float* d, const float* x, int n, int c) {
  __shared__ float left[16][17], right[16][17];
  const int tx = threadIdx.x, ty = threadIdx.y, i = blockIdx.y * 16 + ty, j = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int at = 0; at < c; at += 16) {
    left[ty][tx] = x[i * c + at + tx];
    right[ty][tx] = x[(blockIdx.x * 16 + ty) * c + at + tx];
    __syncthreads();
    for (int k = 0; k < 16; k++) {
      const float difference = left[ty][k] - right[tx][k];
      sum += difference * difference;
    }
    __syncthreads();
  }
  d[i * n + j] = sum;
}
