//! gemmlab args=y:f32[n]=zeros n=256 block=64 grid=4
// Reads what the previous block writes, without synchronization.
extern "C" __global__ void k(float* y) {
  int i = blockIdx.x * 64 + threadIdx.x;
  float left = threadIdx.x == 0 && i > 0 ? y[i - 1] : 0.0f;
  y[i] = left + 1.0f;  // expect: global race
}
