//! gemmlab block=32,4 grid=m/4 args=y:f32[m]=zeros,w:i32[m*n/8],scales:f16[m*n/32],x:f32[n],m,n m=4096 n=4096

// A vector by a matrix of four-bit weights: 32 of them have one scale; a warp per row.
#include <cuda_fp16.h>
extern "C" __global__ void quantized_gemv(float* y, const uint4* w, const half* scales, const float4* x, int m, int n) {
  const int row = blockIdx.x * 4 + threadIdx.y, lane = threadIdx.x, groups = n / 32;
  float sum = 0;
  for (int group = lane; group < groups; group += 32) {
    const uint4 packed = w[(size_t)row * groups + group];
    const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
    float part = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float4 low = x[group * 8 + 2 * i], high = x[group * 8 + 2 * i + 1];
      part += low.x * ((int)(words[i] & 15) - 8) + low.y * ((int)(words[i] >> 4 & 15) - 8);
      part += low.z * ((int)(words[i] >> 8 & 15) - 8) + low.w * ((int)(words[i] >> 12 & 15) - 8);
      part += high.x * ((int)(words[i] >> 16 & 15) - 8) + high.y * ((int)(words[i] >> 20 & 15) - 8);
      part += high.z * ((int)(words[i] >> 24 & 15) - 8) + high.w * ((int)(words[i] >> 28) - 8);
    }
    sum += part * __half2float(scales[(size_t)row * groups + group]);
  }
  for (int delta = 16; delta; delta /= 2) sum += __shfl_xor_sync(~0u, sum, delta);
  if (lane == 0) y[row] = sum;
}
