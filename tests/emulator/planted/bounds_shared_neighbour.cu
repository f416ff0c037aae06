//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// The last thread writes past the first array, into the second one.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float a[64], b[64];
  int t = threadIdx.x;
  b[t] = x[t];
  __syncthreads();
  a[t + 1] = x[t];  // expect: beyond variable
  __syncthreads();
  y[t] = a[t > 0 ? t : 1] + b[t];
}
