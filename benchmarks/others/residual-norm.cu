//! gemmlab block=32,4 grid=ceil_div(n,4) smem=16*c args=y:f32[n*c]=zeros,s:f32[n*c]=zeros,x:f32[n*c],z:f32[n*c],w:f32[c],b:f32[c],n,c n=8192 c=768

// Sum of two rows, kept in shared memory, then normalized: a warp per row, vectors of four.
__device__ float total(float x) {
  for (int delta = 16; delta; delta /= 2) x += __shfl_xor_sync(~0u, x, delta);
  return x;
}
extern "C" __global__ void residual_norm(float4* y, float4* s, const float4* x, const float4* z,
                                         const float4* w, const float4* b, int n, int c) {
  extern __shared__ float4 rows[];
  const int count = c / 4, row = blockIdx.x * 4 + threadIdx.y;
  if (row >= n) return;
  float4* mine = rows + threadIdx.y * count;
  const size_t first = (size_t)row * count;
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += 32) {
    const float4 p = __ldcs(x + first + i), q = __ldcs(z + first + i);
    const float4 v = make_float4(p.x + q.x, p.y + q.y, p.z + q.z, p.w + q.w);
    sum += v.x + v.y + v.z + v.w;
    mine[i] = v;
    s[first + i] = v;
  }
  const float mean = total(sum) / c;
  sum = 0;
  for (int i = threadIdx.x; i < count; i += 32) {
    const float4 v = mine[i];
    sum += (v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean) +
           (v.z - mean) * (v.z - mean) + (v.w - mean) * (v.w - mean);
  }
  const float scale = rsqrtf(total(sum) / c + 1e-5f);
  for (int i = threadIdx.x; i < count; i += 32) {
    const float4 v = mine[i], p = w[i], q = b[i];
    __stcs(y + first + i, make_float4((v.x - mean) * scale * p.x + q.x, (v.y - mean) * scale * p.y + q.y,
                                      (v.z - mean) * scale * p.z + q.z, (v.w - mean) * scale * p.w + q.w));
  }
}
