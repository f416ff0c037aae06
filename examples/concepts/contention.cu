//! gemmlab block=256 grid=4 args=counts:u32[1024]=zeros,spread spread=32

// Lanes i and i + spread add to one number.
extern "C" __global__ void count(unsigned* counts, int spread) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&counts[i / 32 * 32 + i % spread], 1);
}
