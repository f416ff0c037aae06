//! gemmlab args=x:f32[n],part:f32[4]=empty,y:f32[1]=empty,c:u32[1]=zeros n=256 block=64 grid=4
// The ticket is drawn before the data is written, although both are fenced.
extern "C" __global__ void k(const float* x, float* part, float* y, unsigned* c) {
  if (threadIdx.x) return;
  __threadfence();
  unsigned before = atomicAdd(c, 1);
  part[blockIdx.x] = x[blockIdx.x];
  __threadfence();
  if (before == 3) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += part[i];  // expect: global race
    y[0] = sum;
  }
}
