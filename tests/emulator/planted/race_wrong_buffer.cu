//! gemmlab args=x:f32[8*n],y:f32[n]=empty n=64 block=n grid=1
// Two buffers with one barrier per step, but each step loads into the buffer that is being read.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float tile[2][64];
  int t = threadIdx.x;
  float sum = 0.0f;
  tile[0][t] = x[t];
  tile[1][t] = x[t];
  __syncthreads();
  for (int i = 1; i < 8; ++i) {
    sum += tile[(i + 1) % 2][63 - t];
    tile[(i + 1) % 2][t] = x[64 * i + t];  // expect: shared race
    __syncthreads();
  }
  y[t] = sum;
}
