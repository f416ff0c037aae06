// Kernels in which lanes of a warp do not do together what they must; 64 threads, or as it says.
#include <cooperative_groups.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__ void

KERNEL mask_of_another_lane(int* o) {
  int t = threadIdx.x;
  o[t] = __shfl_xor_sync(1u, t, 1);  // expect: warp participation
}
KERNEL mask_of_the_upper_half(int* o) {
  int t = threadIdx.x;
  if (t % 32 < 16) o[t] = __shfl_xor_sync(0xffff0000u, t, 8);  // expect: warp participation
}
KERNEL vote_without_itself(int* o) {
  int t = threadIdx.x;
  o[t] = __any_sync(0xfffffffeu, t == 5);  // expect: warp participation
}
KERNEL ballot_of_one_lane(int* o) {
  int t = threadIdx.x;
  o[t] = __ballot_sync(1u << (t + 1) % 32, t & 1);  // expect: warp participation
}
KERNEL match_without_itself(int* o) {
  int t = threadIdx.x;
  o[t] = __match_any_sync(~(1u << t % 32), t / 4);  // expect: warp participation
}
KERNEL redux_without_itself(int* o) {
  int t = threadIdx.x;
  if (t % 32 < 8) o[t] = __reduce_add_sync(0x7fu, t);  // expect: warp participation
}
KERNEL syncwarp_of_others(int* o) {
  int t = threadIdx.x;
  o[t] = t;
  __syncwarp(0xffffu);  // expect: warp participation
  o[t] = 2 * o[t];
}
KERNEL masks_differ(int* o) {
  int t = threadIdx.x;
  unsigned m = t % 2 ? FULL : 0x55555555u;
  o[t] = __shfl_sync(m, t, 0);  // expect: warp participation
}
KERNEL masks_overlap(int* o) {
  int t = threadIdx.x;
  unsigned m = t % 32 < 16 ? 0x1ffffu : 0xffff0000u;
  o[t] = __ballot_sync(m, t & 1);  // expect: warp participation
}
KERNEL masks_of_each_lane(int* o) {
  int t = threadIdx.x;
  o[t] = __all_sync(3u << t % 31, t < 99);  // expect: warp participation
}
KERNEL shuffle_in_half_a_warp(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 < 16) v += __shfl_xor_sync(FULL, v, 8);  // expect: warp participation
  o[t] = v;
}
KERNEL vote_in_half_a_warp(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 >= 16) v = __ballot_sync(FULL, t & 1);  // expect: warp participation
  o[t] = v;
}
KERNEL redux_in_half_a_warp(int* o) {
  int t = threadIdx.x, v = t;
  if (t & 1) v = __reduce_max_sync(FULL, v);  // expect: warp participation
  o[t] = v;
}
KERNEL syncwarp_in_half_a_warp(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x;
  if (t % 32 < 16) {
    s[t] = t;
    __syncwarp();  // expect: warp participation
    o[t] = s[t ^ 1];
  }
  if (t % 32 >= 16) o[t] = t;
}
KERNEL shuffle_before_a_barrier(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 < 16) v += __shfl_down_sync(FULL, v, 4);  // expect: warp participation
  __syncthreads();
  o[t] = v;
}
KERNEL vote_against_shuffle(int* o) {
  int t = threadIdx.x, v;
  if (t % 32 < 16) v = __any_sync(FULL, t == 3);  // expect: warp participation
  else v = __shfl_sync(FULL, t, 20);
  o[t] = v;
}
KERNEL other_mode(int* o) {
  int t = threadIdx.x, v;
  if (t % 32 < 16) v = __shfl_down_sync(FULL, t, 16);  // expect: warp participation
  else v = __shfl_up_sync(FULL, t, 16);
  o[t] = v;
}
KERNEL other_mask_on_the_other_side(int* o) {
  int t = threadIdx.x, v;
  if (t % 32 < 16) v = __ballot_sync(FULL, t & 1);  // expect: warp participation
  else v = __ballot_sync(0xffff0000u, t & 1);
  o[t] = v;
}
KERNEL leaves_the_loop_earlier(int* o) {
  int t = threadIdx.x, sum = 0;
  for (int i = 0; i < t % 4 + 1; i++) sum += __popc(__ballot_sync(FULL, i));  // expect: warp participation
  o[t] = sum;
}
KERNEL mask_is_of_an_earlier_ballot(int* o) {
  int t = threadIdx.x, v = t;
  unsigned m = __ballot_sync(FULL, t % 32 < 24);
  if (t % 32 < 20) v += __shfl_xor_sync(m, v, 1);  // expect: warp participation
  o[t] = v;
}
KERNEL break_before_the_sync(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  for (int i = 0; i < 4; i++) {
    if (i == 2 && t % 32 == 7) break;
    __syncwarp();  // expect: warp participation
    int v = s[t ^ 1];
    __syncwarp();
    s[t] = v + i;
  }
  o[t] = s[t];
}
KERNEL group_of_a_tile_in_half_of_it(int* o) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int t = threadIdx.x, v = t;
  if (tile.thread_rank() < 4) v = tile.shfl_xor(v, 1);  // expect: warp participation
  o[t] = v;
}
KERNEL tile_syncs_in_a_branch(int* o) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  int t = threadIdx.x;
  o[t] = t;
  if (t % 3 == 0) tile.sync();  // expect: warp participation
  o[t] += 1;
}
KERNEL elect_without_itself(int* o) {
  int t = threadIdx.x, p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffff; selp.s32 %0, 1, 0, p; }" : "=r"(p));  // expect: warp participation
  o[t] = p;
}

// Values of lanes that give none

KERNEL lane_outside_mask(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 < 16) v = __shfl_sync(0xffffu, v, t + 16);  // expect: warp participation
  o[t] = v;
}
KERNEL sum_of_a_short_warp(int* o) {  // 48 threads
  int t = threadIdx.x, v = t;
  for (int k = 16; k; k >>= 1)
    v += __shfl_down_sync(FULL, v, k);  // expect: warp participation
  if (t % 32 == 0) o[t / 32] = v;
}
KERNEL sum_after_early_exits(int* o) {
  int t = threadIdx.x, v = t;
  if (t >= 40) return;
  for (int k = 16; k; k >>= 1)
    v += __shfl_down_sync(FULL, v, k);  // expect: warp participation
  if (t % 32 == 0) o[t / 32] = v;
}
KERNEL eight_lanes_sum_sixteen(int* o) {
  int t = threadIdx.x, v = t;
  if (t < 8) {
    for (int k = 8; k; k >>= 1)
      v += __shfl_down_sync(0xffu, v, k);  // expect: warp participation
    if (t == 0) o[0] = v;
  }
}
KERNEL broadcast_of_a_lane_that_is_elsewhere(int* o) {
  int t = threadIdx.x, v = t;
  unsigned m = __ballot_sync(FULL, t % 2);
  if (t % 2) v = __shfl_sync(m, v, 0);  // expect: warp participation
  o[t] = v;
}
KERNEL through_shared_memory(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  if (t % 32 < 8) s[t] = __shfl_xor_sync(0xffu, t, 8);  // expect: warp participation
  __syncthreads();
  o[t] = s[63 - t];
}
KERNEL decides_a_branch(int* o) {
  int t = threadIdx.x;
  o[t] = 0;
  if (t % 32 < 16) {
    int n = __shfl_up_sync(0xffffu, t, 1) + __shfl_down_sync(0xffffu, t, 1);  // expect: warp participation
    if (n > 20) o[t] = 1;
  }
}
KERNEL as_an_index(int* o, const int* a) {
  int t = threadIdx.x;
  o[t] = 0;
  if (t % 32 < 16) o[t] = a[__shfl_xor_sync(0xffffu, t, 17) & 31];  // expect: warp participation
}
KERNEL coalesced_group_wrong_rank(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 4 == 0) v = __shfl_sync(0x11111111u, v, 1);  // expect: warp participation
  o[t] = v;
}
KERNEL wide_value(int* o) {
  int t = threadIdx.x;
  double d = t;
  if (t % 32 < 16) d = __shfl_xor_sync(0xffffu, d, 16);  // expect: warp participation
  o[t] = d;
}
KERNEL leader_has_exited(int* o) {
  int t = threadIdx.x;
  if (t % 32 == 0) return;
  o[t] = __shfl_sync(FULL, t, 0);  // expect: warp participation
}

// .aligned

KERNEL ldmatrix_of_half_a_warp(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x, v = 0;
  s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4);
  if (t % 32 < 16) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at));  // expect: warp participation
  o[t] = v;
}
KERNEL ldmatrix_after_exits(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x, v = 0;
  s[t] = t;
  o[t] = 0;
  __syncthreads();
  if (t % 32 >= 8) return;
  unsigned at = __cvta_generic_to_shared(s + t * 4);
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at));  // expect: warp participation
  o[t] = v;
}
KERNEL stmatrix_of_one_lane(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x;
  s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4);
  if (t == 0) asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(at), "r"(t));  // expect: warp participation
  __syncthreads();
  o[t] = s[t];
}
KERNEL mma_in_a_branch(int* o) {
  int t = threadIdx.x, c = t, d = 0;
  if (t & 1) asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(c), "+r"(d) : "r"(t), "r"(t));  // expect: warp participation
  o[t] = c + d;
}
KERNEL wmma_after_half_returned(int* o) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> c;
  int t = threadIdx.x;
  o[t] = 0;
  if (t % 32 >= 16) return;
  wmma::fill_fragment(c, t);
  wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);  // expect: warp participation
}
KERNEL wmma_in_both_halves(int* o) {  // 32 threads
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> c;
  wmma::fill_fragment(c, 1);
  if (threadIdx.x < 16) wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);  // expect: warp participation
  else wmma::store_matrix_sync(o, c, 16, wmma::mem_col_major);
}
KERNEL wmma_by_16_threads(int* o) {  // 16 threads
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> c;
  wmma::fill_fragment(c, 1);
  wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);  // expect: warp participation
}
KERNEL movmatrix_of_a_quarter(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 < 8) asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(v));  // expect: warp participation
  o[t] = v;
}

// Of a warpgroup

#define WGMMA(d) \
  asm volatile("wgmma.fence.sync.aligned;"); \
  asm volatile("{ wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %4, 0, 1, 1, 0, 0; }" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc)); \
  asm volatile("wgmma.commit_group.sync.aligned;"); \
  asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]))
#define TILE \
  __shared__ __align__(128) int s[1024]; \
  int t = threadIdx.x; \
  for (int i = t; i < 1024; i += blockDim.x) s[i] = 0; \
  asm volatile("fence.proxy.async;"); \
  __syncthreads(); \
  unsigned long long desc = (__cvta_generic_to_shared(s) >> 4) | 8ull << 16 | 16ull << 32; \
  float d[4] = {}

KERNEL wgmma_by_three_warps(int* o) {  // 128 threads
  TILE;
  if (t < 96) {
    WGMMA(d);  // expect: warp participation
  }
  o[t] = d[0];
}
KERNEL wgmma_in_a_block_of_96(int* o) {  // 96 threads
  TILE;
  WGMMA(d);  // expect: warp participation
  o[t] = d[0];
}
KERNEL wgmma_by_half_of_each_warp(int* o) {  // 128 threads
  TILE;
  if (t % 32 < 16) {
    WGMMA(d);  // expect: warp participation
  }
  o[t] = d[0];
}
KERNEL wgmma_more_often_in_one_warp(int* o) {  // 128 threads
  TILE;
  for (int i = 0; i < (t / 32 == 2 ? 3 : 2); i++) {
    WGMMA(d);  // expect: warp participation
  }
  o[t] = d[0];
}
KERNEL setmaxnreg_by_one_warp(int* o) {  // 128 threads
  int t = threadIdx.x;
  if (t < 32) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // expect: warp participation
  o[t] = t;
}
