//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=n grid=1
// The last thread reads past the first array, an element of the second one.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float a[64], b[64];
  int t = threadIdx.x;
  a[t] = x[t];
  b[t] = 2 * x[t];
  __syncthreads();
  y[t] = a[t + 1] + b[t];  // expect: uninitialized read
}
