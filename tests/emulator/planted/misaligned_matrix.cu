//! gemmlab args=x:u16[n],y:u32[32]=empty n=72 block=32 grid=1
// Rows of 9 elements are not aligned to 16 bytes.
extern "C" __global__ void k(const unsigned short* x, unsigned* y) {
  __shared__ __align__(16) unsigned short s[80]; int t = threadIdx.x; unsigned r;
  s[t] = x[t]; s[t + 32] = x[t + 32]; if (t < 16) s[t + 64] = 0;
  __syncwarp();
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"((unsigned)__cvta_generic_to_shared(s + 9 * (t % 8))) : "memory");  // expect: misaligned
  y[t] = r;
}
