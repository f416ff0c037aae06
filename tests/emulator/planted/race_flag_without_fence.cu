//! gemmlab args=x:f32[1],y:f32[1]=empty block=64 grid=1
// The flag may become visible before the data, since there is no fence between them.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float data;
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    data = *x;
    ready = 1;
  } else if (threadIdx.x == 32) {
    while (!ready) {
    }
    *y = data;  // expect: shared race
  }
}
