//! gemmlab args=y:u32[1]=empty block=64 grid=1
// A lock in shared memory protects a plain counter.
extern "C" __global__ void k(unsigned* y) {
  __shared__ unsigned lock, count;
  if (threadIdx.x == 0) lock = count = 0;
  __syncthreads();
  bool done = false;
  while (!done) {
    if (atomicCAS(&lock, 0, 1) == 0) {
      __threadfence_block();
      count += 1;
      __threadfence_block();
      atomicExch(&lock, 0);
      done = true;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) *y = count;
}
