//! gemmlab args=x:f16[8*64],y:u32[n]=empty n=64 block=n grid=1
// ldmatrix reads rows whose copies by other threads may be pending.
extern "C" __global__ void k(const uint4* x, unsigned* y) {
  __shared__ alignas(16) uint4 s[64];
  int t = threadIdx.x;
  unsigned to = __cvta_generic_to_shared(s + t), row = __cvta_generic_to_shared(s + (t ^ 32)), d;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + t) : "memory");
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(d) : "r"(row) : "memory");  // expect: missing wait
  y[t] = d;
}
