//! gemmlab block=256 grid=n/64,m/64 args=a:f16[m*k],b:f16[k*n],c:f32[m*n]=zeros,m,n,k m=1024 n=1024 k=1024

// Tiles of 64×64, staged in shared memory; each of eight warps multiplies 16×32 by the tensor cores.
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void __launch_bounds__(256)
wmma_shared(const half* a, const half* b, float* c, int m, int n, int k) {
  __shared__ half as[64][40], bs[32][72];
  const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 32;
  const half* from_a = a + (blockIdx.y * 64 + threadIdx.x / 4) * k + threadIdx.x % 4 * 8;
  const half* from_b = b + threadIdx.x / 8 * n + blockIdx.x * 64 + threadIdx.x % 8 * 8;
  fragment<matrix_a, 16, 16, 16, half, row_major> left;
  fragment<matrix_b, 16, 16, 16, half, row_major> right;
  fragment<accumulator, 16, 16, 16, float> sums[2];
  fill_fragment(sums[0], 0.0f);
  fill_fragment(sums[1], 0.0f);
  for (int at = 0; at < k; at += 32) {
    *(uint4*)&as[threadIdx.x / 4][threadIdx.x % 4 * 8] = *(const uint4*)(from_a + at);
    *(uint4*)&bs[threadIdx.x / 8][threadIdx.x % 8 * 8] = *(const uint4*)(from_b + (size_t)at * n);
    __syncthreads();
    for (int i = 0; i < 32; i += 16) {
      load_matrix_sync(left, &as[row][i], 40);
      for (int j = 0; j < 2; j++) {
        load_matrix_sync(right, &bs[i][column + 16 * j], 72);
        mma_sync(sums[j], left, right, sums[j]);
      }
    }
    __syncthreads();
  }
  for (int j = 0; j < 2; j++)
    store_matrix_sync(c + (blockIdx.y * 64 + row) * n + blockIdx.x * 64 + column + 16 * j, sums[j], n, mem_row_major);
}
