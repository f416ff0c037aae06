//! gemmlab args=x:f32[8*n],y:f32[n]=empty n=32 block=n grid=1
// A float4 load from an address aligned to four bytes only.
extern "C" __global__ void k(const float* x, float* y) {
  int t = threadIdx.x;
  float4 v = *reinterpret_cast<const float4*>(x + 4 * t + 1);  // expect: misaligned
  y[t] = v.x + v.y + v.z + v.w;
}
