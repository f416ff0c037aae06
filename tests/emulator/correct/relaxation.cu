//! gemmlab args=near:i32[256],dist:i32[256]=zeros,done:u32[1]=zeros,sum:i32[1]=zeros,y:i32[1]=empty block=64 grid=4
// A shortest-path step. Reads may be stale, because the atomic minimum compares again. The last
// block reads a sum after all blocks have added to it.
extern "C" __global__ void k(const int* near, int* dist, unsigned* done, int* sum, int* y) {
  int i = blockIdx.x * 64 + threadIdx.x, mine = dist[i];
  atomicMin(&dist[near[i]], mine + 1);
  atomicAdd(sum, near[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(done, 1) == gridDim.x - 1) {
    __threadfence();
    *y = *sum;
  }
}
