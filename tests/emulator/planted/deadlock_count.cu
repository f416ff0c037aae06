//! gemmlab args=y:f32[n]=empty n=64 block=n grid=1
// The barrier expects more threads than the block has.
extern "C" __global__ void k(float* y) {
  y[threadIdx.x] = 1.0f;
  asm volatile("bar.sync 1, 96;" ::: "memory");  // expect: deadlock
}
