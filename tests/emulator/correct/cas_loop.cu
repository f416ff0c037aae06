//! gemmlab args=x:f32[n],y:f32[1]=zeros n=64 block=64 grid=2
// Addition by compare-and-swap. The first read may be plain, since its value is compared again.
extern "C" __global__ void k(const float* x, float* y) {
  int* p = (int*)y; int old = *p, seen;
  do { seen = old; old = atomicCAS(p, seen, __float_as_int(__int_as_float(seen) + x[threadIdx.x])); } while (old != seen);
}
