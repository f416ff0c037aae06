//! gemmlab block=128 grid=ceil_div(n,4) args=y:f32[n*c]=zeros,x:f32[n*c],n,c n=8192 c=2048

// A warp per row: maximum and sum in one pass over vectors of four, last rows first.
extern "C" __global__ void online_softmax(float* y, const float* x, int n, int c) {
  const int lane = threadIdx.x % 32, row = (gridDim.x - blockIdx.x - 1) * 4 + threadIdx.x / 32;
  if (row >= n) return;
  const float4* from = (const float4*)(x + (size_t)row * c);
  float4* to = (float4*)(y + (size_t)row * c);
  float most = -1e30f, sum = 0;
  for (int i = lane; i < c / 4; i += 32) {
    const float4 v = from[i];
    const float before = most;
    most = fmaxf(most, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    sum = sum * expf(before - most) + expf(v.x - most) + expf(v.y - most) + expf(v.z - most) + expf(v.w - most);
  }
  float all = most;
  for (int delta = 16; delta; delta /= 2) all = fmaxf(all, __shfl_xor_sync(~0u, all, delta));
  sum *= expf(most - all);
  for (int delta = 16; delta; delta /= 2) sum += __shfl_xor_sync(~0u, sum, delta);
  const float scale = 1.0f / sum;
  for (int i = lane; i < c / 4; i += 32) {
    const float4 v = __ldcs(from + i);
    __stcs(to + i, make_float4(expf(v.x - all) * scale, expf(v.y - all) * scale,
                               expf(v.z - all) * scale, expf(v.w - all) * scale));
  }
}
