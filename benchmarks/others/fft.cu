//! gemmlab block=256 grid=n args=y:f32[n*2048]=zeros,x:f32[n*2048] n=4096

// A transform of 1024 complex numbers by a block: five passes of four numbers a thread, which
// exchange them in shared memory.
extern "C" __global__ void __launch_bounds__(256) fft(float2* y, const float2* x) {
  __shared__ float re[1024], im[1024];
  const int t = threadIdx.x;
  float2 v[4];
  x += (size_t)blockIdx.x * 1024;
  y += (size_t)blockIdx.x * 1024;
  for (int i = 0; i < 4; i++) v[i] = x[t + 256 * i];
#pragma unroll
  for (int size = 1; size < 1024; size *= 4) {
    const int within = t % size;
    for (int i = 1; i < 4; i++) {
      float s, c;
      __sincosf(-6.2831853f * i * within / (4 * size), &s, &c);
      v[i] = make_float2(v[i].x * c - v[i].y * s, v[i].x * s + v[i].y * c);
    }
    const float2 a = make_float2(v[0].x + v[2].x, v[0].y + v[2].y), b = make_float2(v[0].x - v[2].x, v[0].y - v[2].y);
    const float2 c = make_float2(v[1].x + v[3].x, v[1].y + v[3].y), d = make_float2(v[1].y - v[3].y, v[3].x - v[1].x);
    v[0] = make_float2(a.x + c.x, a.y + c.y);
    v[1] = make_float2(b.x + d.x, b.y + d.y);
    v[2] = make_float2(a.x - c.x, a.y - c.y);
    v[3] = make_float2(b.x - d.x, b.y - d.y);
    if (size == 256) break;
    const int to = (t - within) * 4 + within;
    for (int i = 0; i < 4; i++) re[to + i * size] = v[i].x, im[to + i * size] = v[i].y;
    __syncthreads();
    for (int i = 0; i < 4; i++) v[i] = make_float2(re[t + 256 * i], im[t + 256 * i]);
    __syncthreads();
  }
  for (int i = 0; i < 4; i++) y[t + 256 * i] = v[i];
}
