//! gemmlab block=128 grid=n/128,m/64 args=c:f32[m*n]=zeros,a:f16[m*k],b:f16[n*k],m,n,k m=2048 n=2048 k=2048

// C = A·Bᵀ. Three stages of asynchronous copies, swizzled; each of four warps multiplies 32×64 by
// instructions of the tensor cores, whose operands ldmatrix loads.
#include <cuda_fp16.h>
#include <cstdint>
__device__ uint32_t place(const half* s) { return (uint32_t)__cvta_generic_to_shared(s); }
__device__ void copy(half* to, const half* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place(to)), "l"(from));
}
__device__ void load(uint32_t* r, const half* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place(from)));
}
__device__ void multiply(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ int at(int row, int chunk) { return row * 32 + ((chunk ^ (row / 2 % 4)) * 8); }
extern "C" __global__ void __launch_bounds__(128)
mma_stages(float* c, const half* a, const half* b, int m, int n, int k) {
  __shared__ __align__(16) half as[3][64 * 32], bs[3][128 * 32];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int row = warp / 2 * 32, column = warp % 2 * 64;
  a += (size_t)blockIdx.y * 64 * k;
  b += (size_t)blockIdx.x * 128 * k;
  auto fetch = [&](int stage, int from) {
    for (int i = t; i < 256; i += 128) copy(&as[stage][at(i / 4, i % 4)], a + i / 4 * k + from + i % 4 * 8);
    for (int i = t; i < 512; i += 128) copy(&bs[stage][at(i / 4, i % 4)], b + i / 4 * k + from + i % 4 * 8);
  };
  float sums[2][8][4] = {};
  for (int stage = 0; stage < 2; stage++) {
    fetch(stage, stage * 32);
    asm volatile("cp.async.commit_group;");
  }
  int now = 0, next = 2;
  for (int i = 0; i < k; i += 32) {
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
    if (i + 64 < k) fetch(next, i + 64);
    asm volatile("cp.async.commit_group;");
#pragma unroll
    for (int half_k = 0; half_k < 2; half_k++) {
      uint32_t left[2][4], right[4][4];
#pragma unroll
      for (int x = 0; x < 2; x++) load(left[x], &as[now][at(row + x * 16 + lane % 16, half_k * 2 + lane / 16)]);
#pragma unroll
      for (int y = 0; y < 4; y++)
        load(right[y], &bs[now][at(column + y * 16 + lane % 8 + lane / 16 * 8, half_k * 2 + lane / 8 % 2)]);
#pragma unroll
      for (int x = 0; x < 2; x++)
#pragma unroll
        for (int y = 0; y < 8; y++) multiply(sums[x][y], left[x], right[y / 2][y % 2 * 2], right[y / 2][y % 2 * 2 + 1]);
    }
    now = now == 2 ? 0 : now + 1;
    next = next == 2 ? 0 : next + 1;
  }
#pragma unroll
  for (int x = 0; x < 2; x++)
#pragma unroll
    for (int y = 0; y < 8; y++) {
      float* to = c + (size_t)(blockIdx.y * 64 + row + x * 16 + lane / 4) * n + blockIdx.x * 128 + column + y * 8 + lane % 4 * 2;
      *(float2*)to = make_float2(sums[x][y][0], sums[x][y][1]);
      *(float2*)(to + 8 * n) = make_float2(sums[x][y][2], sums[x][y][3]);
    }
}
