//! gemmlab args=x:u32[n],y:u32[n]=empty n=128 block=32 grid=1
// Each thread merges four elements and reads one past the end.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  // two sorted halves are made by counting, then merged; one element past the end is read
  __shared__ unsigned s[136];
  int t = threadIdx.x;
  for (int i = t; i < 128; i += 32) s[i] = (i % 64) * 2 + (i >= 64);
  __syncthreads();
  int diag = t * 4, lo = max(0, diag - 64), hi = min(diag, 64);
  while (lo < hi) { int mid = (lo + hi) / 2; if (s[mid] <= s[64 + diag - 1 - mid]) lo = mid + 1; else hi = mid; }
  int a = lo, b = diag - lo + 64;
  unsigned u = s[a], v = s[b];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bool left = b >= 128 || (a < 64 && u <= v);
    y[diag + i] = (left ? u : v) + x[0];
    if (left) u = s[++a]; else v = s[++b];
  }
}
