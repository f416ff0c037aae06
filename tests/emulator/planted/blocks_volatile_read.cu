//! gemmlab args=x:f32[32*n],parts:f32[n]=empty,y:f32[1]=empty,count:i32[1]=zeros n=5 block=32 grid=n
// The last block reads values written without a fence; volatile does not help.
extern "C" __global__ void k(const float* x, float* parts, float* y, int* count) {
  __shared__ bool last;
  float v = x[blockIdx.x * 32 + threadIdx.x];
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = v;
    last = atomicAdd(count, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; ++i) sum += ((volatile float*)parts)[i];  // expect: global race
  *y = sum;
}
