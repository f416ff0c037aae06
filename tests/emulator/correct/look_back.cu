//! gemmlab args=x:u32[n],y:u32[n]=empty,st:u32[8]=zeros,val:u32[16]=zeros,tick:u32[1]=zeros n=1024 block=128 grid=8
// Each block adds the values that previous blocks published with a status word.
extern "C" __global__ void k(const unsigned* x, unsigned* y, unsigned* st, unsigned* val, unsigned* tick) {
  __shared__ unsigned s[128], tile, before;
  int t = threadIdx.x;
  if (t == 0) tile = atomicAdd(tick, 1);
  __syncthreads();
  unsigned b = tile, i = b * 128 + t;
  s[t] = x[i];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) { unsigned v = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += v; __syncthreads(); }
  if (t == 0) {
    val[2 * b] = s[127]; __threadfence(); atomicExch(&st[b], b == 0 ? 2 : 1);
    if (b == 0) { val[1] = s[127]; __threadfence(); atomicExch(&st[0], 2); }
    unsigned sum = 0;
    for (int p = (int)b - 1; p >= 0;) {
      unsigned f = atomicAdd(&st[p], 0);
      if (f == 0) continue;
      __threadfence();
      if (f == 2 && p > 0) { sum += ((volatile unsigned*)val)[2 * p + 1]; break; }
      sum += ((volatile unsigned*)val)[2 * p]; --p;
    }
    before = sum;
    if (b > 0) { val[2 * b + 1] = sum + s[127]; __threadfence(); atomicExch(&st[b], 2); }
  }
  __syncthreads();
  y[i] = before + s[t];
}
