//! gemmlab block=256 grid=ceil_div(t*h*32,256) args=x:f32[t*h*64],t,h t=1024 h=12

// Turns pairs of a head's elements by an angle that depends on the position; in place.
extern "C" __global__ void rope(float2* x, int t, int h) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, pair = i % 32, position = i / 32 / h;
  if (position >= t) return;
  const float angle = position * powf(10000.0f, -pair / 32.0f);
  float s, c;
  sincosf(angle, &s, &c);
  const float2 v = x[i];
  x[i] = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
}
