//! gemmlab problem=gemm layout=row args=a,b,c,m,n,k block=256 grid=n/64,m/64

// Tiles of 64×64, the next of which is loaded to registers while this one is multiplied: 4×4 per thread.
extern "C" __global__ void __launch_bounds__(256)
prefetched_tile(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[2][16][64], bs[2][16][64];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int row_a = threadIdx.x / 4, column_a = threadIdx.x % 4 * 4;
  a += (blockIdx.y * 64 + row_a) * k + column_a;
  b += ty * n + blockIdx.x * 64 + tx * 4;
  float4 next_a = *(const float4*)a, next_b = *(const float4*)b;
  float sums[4][4] = {};
  int stage = 0;
  for (int at = 0; at < k; at += 16, stage ^= 1) {
    as[stage][column_a][row_a] = next_a.x;
    as[stage][column_a + 1][row_a] = next_a.y;
    as[stage][column_a + 2][row_a] = next_a.z;
    as[stage][column_a + 3][row_a] = next_a.w;
    *(float4*)&bs[stage][ty][tx * 4] = next_b;
    __syncthreads();
    if (at + 16 < k) {
      a += 16;
      b += 16 * n;
      next_a = *(const float4*)a;
      next_b = *(const float4*)b;
    }
#pragma unroll
    for (int dot = 0; dot < 16; dot++) {
      const float4 x = *(const float4*)&as[stage][dot][ty * 4], y = *(const float4*)&bs[stage][dot][tx * 4];
      const float p[4] = {x.x, x.y, x.z, x.w}, q[4] = {y.x, y.y, y.z, y.w};
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sums[i][j] += p[i] * q[j];
    }
  }
  for (int i = 0; i < 4; i++)
    *(float4*)(c + (blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4) =
        make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
}
