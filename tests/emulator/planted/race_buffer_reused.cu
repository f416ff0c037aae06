//! gemmlab args=x:f32[n],y:f32[n]=empty n=128 block=128 grid=1
// The second reduction overwrites the first one's result while threads still read it.
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[4]; int t = threadIdx.x; float v = x[t], m = v;
  for (int d = 16; d; d /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
  if (t % 32 == 0) s[t / 32] = m;
  __syncthreads();
  m = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]));
  float z = expf(v - m);
  for (int d = 16; d; d /= 2) z += __shfl_xor_sync(~0u, z, d);
  if (t % 32 == 0) s[t / 32] = z;  // expect: shared race
  __syncthreads();
  y[t] = s[0] + s[1] + s[2] + s[3];
}
