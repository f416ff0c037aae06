//! gemmlab block=512 grid=n/1024 args=x:f32[n],y:f32[n]=zeros,n n=16777216

// Work-efficient exclusive scan of 1024 elements per block: up and down a tree in shared memory.
extern "C" __global__ void block_scan(const float* x, float* y, int n) {
  __shared__ float t[1024];
  const int i = threadIdx.x, first = blockIdx.x * 1024;
  t[2 * i] = x[first + 2 * i];
  t[2 * i + 1] = x[first + 2 * i + 1];
  int offset = 1;
  for (int d = 512; d > 0; d >>= 1) {
    __syncthreads();
    if (i < d) t[offset * (2 * i + 2) - 1] += t[offset * (2 * i + 1) - 1];
    offset *= 2;
  }
  if (i == 0) t[1023] = 0;
  for (int d = 1; d < 1024; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (i < d) {
      const int left = offset * (2 * i + 1) - 1, right = offset * (2 * i + 2) - 1;
      const float kept = t[left];
      t[left] = t[right];
      t[right] += kept;
    }
  }
  __syncthreads();
  y[first + 2 * i] = t[2 * i];
  y[first + 2 * i + 1] = t[2 * i + 1];
}
