//! gemmlab block=128 grid=ceil_div(n,256) args=call:f32[n]=zeros,put:f32[n]=zeros,s:f32[n]=uniform,x:f32[n]=uniform,t:f32[n]=uniform,n n=8388608

// Prices of options: two per thread, exponentials, logarithms and square roots.
__device__ float cumulative(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  const float tail = 0.39894228f * __expf(-0.5f * d * d) *
      (k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
  return d > 0 ? 1.0f - tail : tail;
}
__device__ void price(float& call, float& put, float s, float x, float t) {
  const float root = sqrtf(t), d1 = (__logf(s / x) + (0.02f + 0.5f * 0.09f) * t) / (0.3f * root);
  const float d2 = d1 - 0.3f * root, one = cumulative(d1), two = cumulative(d2);
  const float discounted = x * __expf(-0.02f * t);
  call = s * one - discounted * two;
  put = discounted * (1.0f - two) - s * (1.0f - one);
}
extern "C" __global__ void __launch_bounds__(128)
black_scholes(float2* call, float2* put, const float2* s, const float2* x, const float2* t, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 2) return;
  const float2 a = s[i], b = x[i], c = t[i];
  float2 calls, puts;
  price(calls.x, puts.x, a.x + 5, b.x + 1, c.x + 0.25f);
  price(calls.y, puts.y, a.y + 5, b.y + 1, c.y + 0.25f);
  call[i] = calls;
  put[i] = puts;
}
