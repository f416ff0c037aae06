//! gemmlab args=y:u32[n]=empty n=32 block=n grid=1
// Lanes read what the warp stored as a matrix, without __syncwarp() in between.
extern "C" __global__ void k(unsigned* y) {
  __shared__ alignas(16) unsigned s[32];
  int t = threadIdx.x;
  unsigned row = __cvta_generic_to_shared(s + 4 * (t % 8));
  asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(t) : "memory");
  y[t] = s[31 - t];  // expect: shared race
}
