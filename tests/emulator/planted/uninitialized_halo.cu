//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// The element past the tile is never loaded.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[65];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  y[t] = s[t] + s[t + 1];  // expect: uninitialized read
}
