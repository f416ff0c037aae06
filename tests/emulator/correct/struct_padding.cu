//! gemmlab args=x:u32[n],y:u32[n]=empty n=64 block=n grid=1
// Copies a struct, including padding that was never written.
struct P { unsigned char a; unsigned b; };
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ P s[64], r[64]; int t = threadIdx.x;
  s[t].a = x[t]; s[t].b = x[t] + 1;
  __syncthreads();
  r[t] = s[63 - t];
  __syncthreads();
  y[t] = r[t].a + r[t].b;
}
