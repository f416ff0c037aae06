//! gemmlab args=y:i32[2]=empty block=2 grid=1
extern "C" __global__ void k(int* y) {
  int* p = (int*)malloc(16);
  p[threadIdx.x] = 1;
  y[threadIdx.x] = p[2 * threadIdx.x];  // expect: uninitialized read
  free(p);
}
