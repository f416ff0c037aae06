//! gemmlab args=x:u32[n],y:u32[n]=empty n=64 block=n grid=1
// Lanes of one instruction write the same value to a word, or write to it in turn.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  int t = threadIdx.x;
  y[t / 8] = t / 8;
  y[8 + t / 32] = x[t / 32 * 32];
  __syncthreads();
  for (int k = 0; k < 32; k++) {
    if (t == k) y[10] = x[t] + t;
    __syncwarp();
  }
  if (t >= 11) y[t] = 0;
}
