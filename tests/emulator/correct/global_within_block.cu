//! gemmlab args=x:f32[n],y:f32[n]=empty,z:f32[n]=empty n=256 block=128 grid=2
// Threads of a block exchange values through global memory, separated by a barrier.
extern "C" __global__ void k(const float* x, float* y, float* z) {
  int first = blockIdx.x * 128, t = threadIdx.x;
  y[first + t] = 2 * x[first + t];
  __syncthreads();
  z[first + t] = y[first + 127 - t];
  __syncthreads();
  y[first + t] = 3 * z[first + 127 - t] + x[first + t];
}
