//! gemmlab args=y:u32[1]=empty block=1 grid=8
// Whoever is last wins; the stores are strong, so it is no race.
extern "C" __global__ void k(volatile unsigned* y) {
  *y = blockIdx.x;  // expect: order dependent
}
