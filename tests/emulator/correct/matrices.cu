//! gemmlab args=x:f16[8*8],y:u32[n]=empty n=32 block=n grid=1
// A matrix is stored to shared memory and loaded transposed, twice at the same address.
extern "C" __global__ void k(const unsigned* x, unsigned* y) {
  __shared__ alignas(16) unsigned s[32];
  int t = threadIdx.x;
  unsigned row = __cvta_generic_to_shared(s + 4 * (t % 8)), d = x[t];
  for (int i = 0; i < 2; ++i) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(d) : "memory");
    __syncwarp();
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(d) : "r"(row) : "memory");
  }
  s[t] = d;
  __syncwarp();
  y[t] = s[31 - t];
}
