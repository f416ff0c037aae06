//! gemmlab block=64 grid=2 args=y:i32[128]=empty

// Each thread writes where it is: block, warp of the block, lane of the warp.
extern "C" __global__ void where(int* y) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  y[blockIdx.x * blockDim.x + threadIdx.x] = 1000 * blockIdx.x + 100 * warp + lane;
}
