//! gemmlab block=512 grid=ceil_div(n,512) args=y:f32[n]=zeros,x:f32[n],n n=33554432

// An activation, element by element.
extern "C" __global__ void gelu(float* y, const float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    const float v = x[i], cube = 0.044715f * v * v * v;
    y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + cube)));
  }
}
