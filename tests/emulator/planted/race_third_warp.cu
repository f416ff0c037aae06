//! gemmlab args=x:f32[n],y:f32[n]=empty n=32 block=96 grid=1
// Warp 2 waits for warp 1 before it writes, but not for warp 0, for which warp 1 waits later.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[32];
  int t = threadIdx.x, lane = t % 32;
  if (t < 32) s[t] = x[t];
  __syncthreads();
  if (t < 32) {
    y[t] = s[t];
    asm volatile("bar.arrive 2, 64;" ::: "memory");
  } else if (t < 64) {
    float v = s[lane];
    if (v > 1e30f) y[lane] = v;
    asm volatile("bar.arrive 1, 64;" ::: "memory");
    asm volatile("bar.sync 2, 64;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    s[lane] = 1;  // expect: shared race
  }
}
