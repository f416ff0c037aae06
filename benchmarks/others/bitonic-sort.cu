//! gemmlab block=512 grid=n/1024 args=x:f32[n]=uniform,y:f32[n]=zeros n=4194304

// Sorts parts of 1024 elements in shared memory.
extern "C" __global__ void bitonic_sort(const float* x, float* y) {
  __shared__ float keys[1024];
  const int first = blockIdx.x * 1024, t = threadIdx.x;
  keys[t] = x[first + t];
  keys[t + 512] = x[first + t + 512];
  for (int size = 2; size <= 1024; size *= 2) {
    const bool up = size == 1024 || (t & (size / 2)) == 0;
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int at = 2 * t - (t & (stride - 1));
      const float low = keys[at], high = keys[at + stride];
      if ((low > high) == up) {
        keys[at] = high;
        keys[at + stride] = low;
      }
    }
  }
  __syncthreads();
  y[first + t] = keys[t];
  y[first + t + 512] = keys[t + 512];
}
