//! gemmlab block=256 grid=ceil_div(c*(n/2)*(n/2),256) args=y:f32[c*(n/2)*(n/2)]=zeros,x:f32[c*n*n],c,n c=256 n=112

// The largest of 3×3 elements, two apart.
extern "C" __global__ void max_pool(float* y, const float* x, int c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, half_n = n / 2;
  if (i >= c * half_n * half_n) return;
  const int column = i % half_n * 2, row = i / half_n % half_n * 2, channel = i / (half_n * half_n);
  const float* from = x + (size_t)channel * n * n;
  float most = -1e30f;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++)
      if (row + dy >= 0 && row + dy < n && column + dx >= 0 && column + dx < n)
        most = fmaxf(most, from[(row + dy) * n + column + dx]);
  y[i] = most;
}
