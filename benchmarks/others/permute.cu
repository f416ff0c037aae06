//! gemmlab block=256 grid=ceil_div(b*t*h*64,256) args=q:f32[b*t*h*64]=zeros,k:f32[b*t*h*64]=zeros,v:f32[b*t*h*64]=zeros,x:f32[3*b*t*h*64],b,t,h b=4 t=1024 h=12

// From (b, t, 3, h, 64) to three arrays of (b, h, t, 64).
extern "C" __global__ void permute(float* q, float* k, float* v, const float* x, int b, int t, int h) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= b * h * t * 64) return;
  const int d = i % 64, at = i / 64 % t, head = i / (64 * t) % h, batch = i / (64 * t * h);
  const int from = ((batch * t + at) * 3 * h + head) * 64 + d;
  q[i] = x[from];
  k[i] = x[from + h * 64];
  v[i] = x[from + 2 * h * 64];
}
