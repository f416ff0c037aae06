//! gemmlab args=x:f32[4*n],y:f32[n]=empty n=64 block=n grid=1
// The next tile is stored while other warps still read the current one.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) {
    tile[t] = x[64 * i + t];  // expect: shared race
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += tile[(t + j) % 64];
  }
  y[t] = sum;
}
