//! gemmlab block=256 grid=ceil_div(h*t*t,256) args=y:f32[h*t*t]=zeros,x:f32[t*h*192],t,h,64 h=12 t=1024

// Scores of attention: a thread per pair of a query and a key, none above the diagonal.
extern "C" __global__ void scores(float* y, const float* x, int t, int h, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= h * t * t) return;
  const int key = i % t, query = i / t % t, head = i / (t * t);
  if (key > query) {
    y[i] = -INFINITY;
    return;
  }
  const float* q = x + (size_t)query * h * size * 3 + head * size;
  const float* p = x + (size_t)key * h * size * 3 + head * size + h * size;
  float sum = 0;
  for (int j = 0; j < size; j++) sum += q[j] * p[j];
  y[i] = sum * rsqrtf((float)size);
}
