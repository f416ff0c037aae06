//! gemmlab args=lock:i32[1]=zeros,y:i32[1]=zeros block=32 grid=1
// A lane that acquires the lock updates the counter; the other lanes retry.
extern "C" __global__ void k(int* lock, int* y) {
  bool done = threadIdx.x >= 3;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *y += threadIdx.x;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
