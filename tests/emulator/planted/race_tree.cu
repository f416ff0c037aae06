//! gemmlab args=x:f32[n],y:f32[1]=empty n=256 block=n grid=1
// A tree reduction without the barrier at the end of each step.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int half = 128; half > 0; half /= 2)
    if (t < half)
      s[t] += s[t + half];  // expect: shared race
  __syncthreads();
  if (t == 0) y[0] = s[0];
}
