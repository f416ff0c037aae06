//! gemmlab args=x:f16[8*16],y:f32[64*8]=empty block=128 grid=1
// A register that holds A changes while the tensor cores still read it.
extern "C" __global__ void k(const uint4* x, float* y) {
  __shared__ alignas(128) uint4 b[16];
  int t = threadIdx.x;
  if (t < 16) b[t] = x[t];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  unsigned long long tile = (unsigned)__cvta_generic_to_shared(b) >> 4 | 8ull << 16 | 16ull << 32;
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{ .reg .b32 a; mov.b32 a, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {a, a, a, a}, %4, 1, 1, 1, 0; wgmma.commit_group.sync.aligned; add.u32 a, a, 1; }"  // expect: missing wait
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(tile) : "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  for (int i = 0; i < 4; ++i) y[128 * i + t] = d[i];
}
