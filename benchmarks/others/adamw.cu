//! gemmlab block=512 grid=ceil_div(n,512) args=p:f32[n],g:f32[n],m:f32[n]=zeros,v:f32[n]=zeros,n n=16777216

// A step of an optimizer: four arrays, three of them updated.
extern "C" __global__ void adamw(float* p, const float* g, float* m, float* v, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float gradient = g[i];
  const float first = 0.9f * m[i] + 0.1f * gradient;
  const float second = 0.95f * v[i] + 0.05f * gradient * gradient;
  m[i] = first;
  v[i] = second;
  p[i] -= 3e-4f * (first / 0.1f / (sqrtf(second / 0.05f) + 1e-8f) + 0.01f * p[i]);
}
