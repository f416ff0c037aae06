//! gemmlab block=256 grid=ceil_div(n,1024) args=y:f32[n]=zeros,gate:f32[n],up:f32[n],n n=4194304

// Four elements per thread: up · gate · sigmoid(gate).
extern "C" __global__ void swiglu(float4* y, const float4* gate, const float4* up, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n / 4) return;
  const float4 g = gate[i], u = up[i];
  y[i] = make_float4(u.x * g.x / (1 + expf(-g.x)), u.y * g.y / (1 + expf(-g.y)),
                     u.z * g.z / (1 + expf(-g.z)), u.w * g.w / (1 + expf(-g.w)));
}
