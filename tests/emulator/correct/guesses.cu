//! gemmlab args=x:f32[256],y:f64[1]=zeros,z:f32[2]=zeros block=64 grid=4
// Initial values for atomicCAS loops and for atomicMax may be stale.
extern "C" __global__ void k(const float* x, double* y, float* z) {
  __shared__ int most;
  if (threadIdx.x == 0) most = 0;
  __syncthreads();
  float v = x[blockIdx.x * 64 + threadIdx.x];
  unsigned long long *p = (unsigned long long*)y, old = *p, seen;
  do {
    seen = old;
    old = atomicCAS(p, seen, __double_as_longlong(__longlong_as_double(seen) + v));
  } while (old != seen);
  int bits = __float_as_int(fabsf(v));
  if (bits > most) atomicMax(&most, bits);
  int *q = (int*)z, largest = *q;
  while (v > __int_as_float(largest)) {
    int before = atomicCAS(q, largest, __float_as_int(v));
    if (before == largest) break;
    largest = before;
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicMax((int*)z + 1, most);
}
