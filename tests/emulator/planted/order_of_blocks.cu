//! gemmlab args=y:u32[1]=empty block=1 grid=8
// The last block's value remains; the stores are strong, so this is not a race.
extern "C" __global__ void k(volatile unsigned* y) {
  *y = blockIdx.x;  // expect: order dependent
}
