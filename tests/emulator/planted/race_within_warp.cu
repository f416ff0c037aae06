//! gemmlab args=x:f32[n],y:f32[n]=empty n=32 block=n grid=1
// Lanes of a warp do not run in lockstep; __syncwarp() is missing.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t] = x[t];
  y[t] = s[t ^ 1];  // expect: shared race
}
