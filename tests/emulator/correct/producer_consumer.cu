//! gemmlab args=x:f32[4*n],y:f32[n]=empty n=64 block=2*n grid=2
// Named barriers: 1 means that the tile is full, 2 that it is empty.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  if (t < 64) {
    for (int i = 0; i < 4; ++i) {
      if (i > 0) asm volatile("bar.sync 2, 128;" ::: "memory");
      s[t] = x[64 * i + t];
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    }
  } else {
    float sum = 0.0f;
    for (int i = 0; i < 4; ++i) {
      asm volatile("bar.sync 1, 128;" ::: "memory");
      sum += s[127 - t];
      if (i < 3) asm volatile("bar.arrive 2, 128;" ::: "memory");
    }
    if (blockIdx.x == 0) y[t - 64] = sum;
  }
}
