//! gemmlab args=y:f32[n]=empty n=64 block=n grid=1
// The last thread writes past the block's shared memory.
extern "C" __global__ void k(float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t + 1] = t;  // expect: out of bounds
  __syncthreads();
  y[t] = s[63];
}
