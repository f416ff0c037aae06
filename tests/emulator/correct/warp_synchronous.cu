//! gemmlab args=x:f32[n],y:f32[1]=empty n=32 block=n grid=1
// A reduction within a warp through shared memory.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncwarp();
  for (int half = 16; half > 0; half /= 2) {
    if (t < half) s[t] += s[t + half];
    __syncwarp();
  }
  if (t == 0) y[0] = s[0];
}
