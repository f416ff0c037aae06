//! gemmlab args=part:f32[n]=zeros,y:f32[1]=empty n=8 block=32 grid=n
// Block 7 assumes that it runs last.
extern "C" __global__ void k(float* part, float* y) {
  if (threadIdx.x != 0) return;
  part[blockIdx.x] = blockIdx.x + 1;
  __threadfence();
  if (blockIdx.x != 7) return;
  float sum = 0.0f;
  for (int i = 0; i < 8; ++i)
    sum += part[i];  // expect: global race
  *y = sum;
}
