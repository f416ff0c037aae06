//! gemmlab args=a:f16[256],c:f32[256]=empty block=32 grid=1
// The accumulators are not initialized.
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const __half* a, float* c) {
  fragment<matrix_a, 16, 16, 16, __half, row_major> x;
  fragment<matrix_b, 16, 16, 16, __half, row_major> y;
  fragment<accumulator, 16, 16, 16, float> sum;
  load_matrix_sync(x, a, 16);
  load_matrix_sync(y, a, 16);
  load_matrix_sync(sum, c, 16, mem_row_major);
  mma_sync(sum, x, y, sum);  // expect: uninitialized read
  store_matrix_sync(c, sum, 16, mem_row_major);
}
