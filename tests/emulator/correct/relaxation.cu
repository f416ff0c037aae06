//! gemmlab args=near:i32[256],dist:i32[256]=zeros,done:u32[1]=zeros,sum:i32[1]=zeros,y:i32[1]=empty block=64 grid=4
// A step of a shortest path: what is read may be old already, for the minimum looks again. The last
// block reads a sum to which all have added.
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
