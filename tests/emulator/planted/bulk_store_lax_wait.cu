//! gemmlab args=y:f32[32]=empty,z:f32[32]=empty block=32 grid=1
// .read waits until the source has been read; the target may not be written yet.
extern "C" __global__ void k(float* y, float* z) {
  __shared__ __align__(128) float s[32];
  s[threadIdx.x] = threadIdx.x;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  unsigned at = (unsigned)__cvta_generic_to_shared(s);
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" ::"l"(y), "r"(at) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
  __syncwarp();
  z[threadIdx.x] = y[31 - threadIdx.x];  // expect: global race
}
