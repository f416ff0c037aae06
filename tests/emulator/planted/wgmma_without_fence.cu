//! gemmlab args=x:f16[64*16+8*16],y:f32[64*8]=empty block=128 grid=1
// The tensor cores read stores of threads that no fence made visible to them.
__device__ unsigned long long descriptor(const void* tile) {
  // Core matrices of 8×8 numbers, 128 bytes apart along k and 256 bytes apart along rows.
  return (unsigned)__cvta_generic_to_shared(tile) >> 4 | 8ull << 16 | 16ull << 32;
}
extern "C" __global__ void k(const uint4* x, float* y) {
  __shared__ alignas(128) uint4 a[128], b[16];
  int t = threadIdx.x;
  a[t] = x[t];
  if (t < 16) b[t] = x[128 + t];
  __syncthreads();
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"  // expect: missing fence
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "l"(descriptor(a)), "l"(descriptor(b)) : "memory");
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  for (int i = 0; i < 4; ++i) y[128 * i + t] = d[i];
}
