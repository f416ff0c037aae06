//! gemmlab args=x:u32[n],y:u32[n]=empty n=128 block=n grid=1
// Shuffles within warps, then the first warp scans the sums of the warps.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ unsigned sums[4];
  int t = threadIdx.x, lane = t % 32;
  unsigned v = x[t];
  for (int d = 1; d < 32; d *= 2) {
    unsigned before = __shfl_up_sync(0xffffffff, v, d);
    if (lane >= d) v += before;
  }
  if (lane == 31) sums[t / 32] = v;
  __syncthreads();
  if (t == 0)
    for (int i = 1; i < 4; ++i) sums[i] += sums[i - 1];
  __syncthreads();
  y[t] = v + (t < 32 ? 0 : sums[t / 32 - 1]);
}
