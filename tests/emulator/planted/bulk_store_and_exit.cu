//! gemmlab args=y:f32[32]=empty block=32 grid=1
// The block exits before the copy has read its shared memory.
extern "C" __global__ void k(float* y) {
  __shared__ __align__(128) float s[32];
  s[threadIdx.x] = 2.0f;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  unsigned at = (unsigned)__cvta_generic_to_shared(s);
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" ::"l"(y), "r"(at) : "memory");  // expect: missing wait
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
}
