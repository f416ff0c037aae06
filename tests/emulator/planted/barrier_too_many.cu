//! gemmlab args=x:f32[n],y:f32[n]=empty n=128 block=96 grid=1
// Two of three warps complete the barrier; the third waits for a second one, which never completes.
extern "C" __global__ void k(const float* x, float* y) {
  int t = threadIdx.x;
  if (t < 32) y[96 + t] = x[t];
  asm volatile("bar.sync 1, 64;" ::: "memory");  // expect: deadlock
  y[t] = x[t];
}
