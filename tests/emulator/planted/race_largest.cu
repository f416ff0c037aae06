//! gemmlab args=x:i32[n],y:i32[n]=empty n=64 block=64 grid=1
// The maximum is read while other threads still update it.
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ int largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  atomicMax(&largest, x[threadIdx.x]);
  y[threadIdx.x] = largest;  // expect: shared race
}
