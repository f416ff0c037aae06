//! gemmlab args=x:f32[n],y:f32[n]=empty,n n=100 block=128 grid=1
// <= instead of <.
extern "C" __global__ void k(const float* x, float* y, int n) {
  int t = threadIdx.x;
  if (t <= n)
    y[t] = 1.0f;  // expect: out of bounds
}
