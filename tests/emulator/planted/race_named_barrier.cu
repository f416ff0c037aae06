//! gemmlab args=x:f32[n],y:f32[n]=empty n=64 block=2*n grid=1
// Consumers wait at a barrier that only synchronizes consumers.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  int t = threadIdx.x;
  if (t < 64) {
    s[t] = x[t];
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 2, 64;" ::: "memory");
    y[t - 64] = s[t - 64];  // expect: shared race
  }
}
