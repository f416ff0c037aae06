//! gemmlab block=256 grid=n/256 args=best:u32[n/256]=zeros,k n=1048576 k=256

// Each thread tries k numbers of a generator for the smallest hash: integer arithmetic alone.
extern "C" __global__ void hash_search(unsigned* best, int k) {
  __shared__ unsigned least;
  if (threadIdx.x == 0) least = ~0u;
  __syncthreads();
  unsigned state = (blockIdx.x * blockDim.x + threadIdx.x) * 747796405u + 2891336453u, smallest = ~0u;
  for (int i = 0; i < k; i++) {
    state = state * 747796405u + 2891336453u;
    unsigned word = ((state >> ((state >> 28) + 4)) ^ state) * 277803737u;
    word = (word >> 22) ^ word;
    word = (word << 7 | word >> 25) ^ (word << 19 | word >> 13) ^ (word >> 3);
    smallest = min(smallest, word);
  }
  atomicMin(&least, smallest);
  __syncthreads();
  if (threadIdx.x == 0) best[blockIdx.x] = least;
}
