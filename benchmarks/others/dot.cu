//! gemmlab block=256 grid=1056 args=out:f32[1]=zeros,x:f32[n],y:f32[n],n n=33554432

// A scalar product: a loop over the grid, a tree in shared memory, one atomic addition per block.
extern "C" __global__ void dot(float* out, const float* x, const float* y, int n) {
  __shared__ float sums[256];
  float sum = 0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += x[i] * y[i];
  sums[threadIdx.x] = sum;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}
