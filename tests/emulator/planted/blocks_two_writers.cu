//! gemmlab args=x:i32[128],y:i32[64]=zeros block=32 grid=4
// Two blocks write to each element, in lockstep.
extern "C" __global__ void k(const int* x, int* y) {
  int i = blockIdx.x * 32 + threadIdx.x;
  y[i % 64] = x[i] + i;  // expect: global race
}
