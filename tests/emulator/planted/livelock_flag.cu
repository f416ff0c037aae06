//! gemmlab args=y:u32[2]=zeros block=32 grid=2
// Each block waits for the other's flag before it sets its own.
extern "C" __global__ void k(volatile unsigned* y) {
  while (y[1 - blockIdx.x] == 0) {  // expect: livelock
  }
  y[blockIdx.x] = 1;
}
