//! gemmlab args=x:f32[8*n],y:f32[n]=empty n=64 block=n grid=1
// Two buffers with one barrier per step.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float tile[2][64];
  int t = threadIdx.x;
  float sum = 0.0f;
  tile[0][t] = x[t];
  __syncthreads();
  for (int i = 1; i < 8; ++i) {
    tile[i % 2][t] = x[64 * i + t];
    sum += tile[(i + 1) % 2][63 - t];
    __syncthreads();
  }
  y[t] = sum + tile[1][63 - t];
}
