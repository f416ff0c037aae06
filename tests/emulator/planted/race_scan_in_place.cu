//! gemmlab args=x:f32[n],y:f32[n]=empty n=128 block=n grid=1
// Each step reads values that a neighbour may overwrite in the same step.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) {
    float before = t >= d ? s[t - d] : 0.0f;
    s[t] += before;  // expect: shared race
    __syncthreads();
  }
  y[t] = s[t];
}
