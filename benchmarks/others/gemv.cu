//! gemmlab block=128 grid=m/4 args=y:f32[m]=zeros,a:f32[m*n],x:f32[n],m,n m=8192 n=8192

// A matrix by a vector: a warp per row, 16 bytes per load.
extern "C" __global__ void gemv(float* y, const float4* a, const float4* x, int m, int n) {
  const int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float sum = 0;
  a += (size_t)row * (n / 4);
  for (int i = lane; i < n / 4; i += 32) {
    const float4 p = a[i], q = x[i];
    sum += p.x * q.x + p.y * q.y + p.z * q.z + p.w * q.w;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (lane == 0) y[row] = sum;
}
