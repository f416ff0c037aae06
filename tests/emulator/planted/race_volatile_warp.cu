//! gemmlab args=x:f32[n],y:f32[1]=empty n=64 block=32 grid=1
// The last steps of a reduction as written for GPUs before Volta.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ volatile float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  s[t + 32] = x[t + 32];
  float other = s[63 - t];  // expect: shared race
  s[t] = other;
  if (t == 0) y[0] = s[0];
}
