//! gemmlab args=y:u32[1]=zeros block=32 grid=1
// The block waits for a flag that is never set.
extern "C" __global__ void k(volatile unsigned* y) {
  while (*y == 0) {  // expect: livelock
  }
}
