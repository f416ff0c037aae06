//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=128 grid=n/128,m/128

// A tile of 64×64 per warp, of which a thread has two times two parts of 8×4: 128 threads per block.
extern "C" __global__ void __launch_bounds__(128)
warp_tiles(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[16 * 128], bs[16 * 128];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 2 * 64, warp_column = warp % 2 * 64;
  const int row = lane / 4 * 8, column = lane % 4 * 4;  // in a part of 64×16
  a += blockIdx.y * 128 * k;
  b += blockIdx.x * 128;
  c += (blockIdx.y * 128 + warp_row) * n + blockIdx.x * 128 + warp_column;
  float sums[8][4][4] = {}, x[8], y[4][4];
  for (int at = 0; at < k; at += 16) {
    for (int i = threadIdx.x / 4; i < 128; i += 32) {
      const float4 from = *(const float4*)(a + i * k + at + threadIdx.x % 4 * 4);
      const int to = threadIdx.x % 4 * 4 * 128 + i;
      as[to] = from.x;
      as[to + 128] = from.y;
      as[to + 256] = from.z;
      as[to + 384] = from.w;
    }
    for (int i = threadIdx.x / 32; i < 16; i += 4)
      *(float4*)(bs + i * 128 + lane * 4) = *(const float4*)(b + (at + i) * n + lane * 4);
    __syncthreads();
#pragma unroll
    for (int dot = 0; dot < 16; dot++) {
      for (int i = 0; i < 8; i++) x[i] = as[dot * 128 + warp_row + row + i];
      for (int part = 0; part < 4; part++)
        for (int j = 0; j < 4; j++) y[part][j] = bs[dot * 128 + warp_column + part * 16 + column + j];
      for (int i = 0; i < 8; i++)
        for (int part = 0; part < 4; part++)
          for (int j = 0; j < 4; j++) sums[i][part][j] += x[i] * y[part][j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; i++)
    for (int part = 0; part < 4; part++)
      *(float4*)(c + (row + i) * n + part * 16 + column) =
          make_float4(sums[i][part][0], sums[i][part][1], sums[i][part][2], sums[i][part][3]);
}
