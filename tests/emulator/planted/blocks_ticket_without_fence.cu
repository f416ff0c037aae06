//! gemmlab args=part:f32[n]=empty,y:f32[1]=empty,count:u32[1]=zeros n=8 block=32 grid=n
// The block with the last ticket adds values that no fence made visible.
extern "C" __global__ void k(float* part, float* y, unsigned* count) {
  if (threadIdx.x != 0) return;
  part[blockIdx.x] = blockIdx.x;
  if (atomicAdd(count, 1) != gridDim.x - 1) return;
  float sum = 0.0f;
  for (int i = 0; i < gridDim.x; ++i)
    sum += part[i];  // expect: global race
  *y = sum;
}
