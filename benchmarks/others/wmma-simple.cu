//! gemmlab block=128,4 grid=m/64,n/64 args=a:f16[m*k],b:f16[k*n],c:f32[m*n]=zeros,d:f32[m*n]=zeros,m,n,k,1.1,1.2 m=1024 n=1024 k=1024

// A warp computes 16×16 of D = alpha·A·B + beta·C from device memory, by the tensor cores.
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void wmma_simple(const half* a, const half* b, const float* c, float* d, int m, int n, int k,
                                       float alpha, float beta) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 16;
  const int column = (blockIdx.y * blockDim.y + threadIdx.y) * 16;
  fragment<matrix_a, 16, 16, 16, half, row_major> left;
  fragment<matrix_b, 16, 16, 16, half, col_major> right;
  fragment<accumulator, 16, 16, 16, float> sum, old;
  fill_fragment(sum, 0.0f);
  for (int at = 0; at < k; at += 16) {
    load_matrix_sync(left, a + row * k + at, k);
    load_matrix_sync(right, b + at + column * k, k);
    mma_sync(sum, left, right, sum);
  }
  load_matrix_sync(old, c + column + row * n, n, mem_row_major);
  for (int i = 0; i < old.num_elements; i++) old.x[i] = alpha * sum.x[i] + beta * old.x[i];
  store_matrix_sync(d + column + row * n, old, n, mem_row_major);
}
