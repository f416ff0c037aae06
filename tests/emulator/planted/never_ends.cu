//! gemmlab args=y:u32[1]=zeros block=32 grid=1
// The step is even, but the value that ends the loop is odd.
extern "C" __global__ void k(volatile unsigned* y) {
  for (unsigned i = y[0]; i != 7; i += 2) {  // expect: never ends
    y[0] = i;
  }
}
