//! gemmlab args=x:i32[128],y:i32[128]=empty block=128 grid=1
// The first lanes of two warps synchronize with flags while the other lanes wait for them.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(const int* x, int* y) {
  __shared__ cg::block_tile_memory<128> memory;
  __shared__ int s[128];
  auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
  s[threadIdx.x] = x[threadIdx.x];
  tile.sync();
  y[threadIdx.x] = s[threadIdx.x ^ 63];
}
