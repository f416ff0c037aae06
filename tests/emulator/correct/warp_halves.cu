//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// Each half of a warp synchronizes its own accesses with its own mask.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  unsigned half = t % 32 < 16 ? 0xffffu : 0xffff0000u;
  s[t] = x[t];
  __syncwarp(half);
  float v = s[t ^ 7];
  __syncwarp(half);
  s[t] = v;
  y[t] = s[t];
}
