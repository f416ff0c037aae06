//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// Loads one unused element past an array; pointers alternate between both arrays.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float a[64], b[64];
  int t = threadIdx.x;
  a[t] = x[t];
  b[t ^ 5] = x[t];
  __syncthreads();
  float next = a[t + 1], sum = 0;
  for (const float* p = x[t] > 0 ? a : b; sum < 3 && p != a + 64 && p != b + 64; ++p) sum += *p * *p;
  y[t] = sum + (t < 63 ? next : 0);
}
