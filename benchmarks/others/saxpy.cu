//! gemmlab block=256 grid=1056 args=y:f32[n],x:f32[n],2.0,n n=4194304

// Each thread goes through the vectors by strides of the grid.
extern "C" __global__ void saxpy(float* y, const float* x, float a, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    y[i] = a * x[i] + y[i];
}
