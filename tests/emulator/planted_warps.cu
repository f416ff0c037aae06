// Kernels in which lanes of a warp do not execute collectives as required; 64 threads unless stated.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__ void
__device__ int lane() { return threadIdx.x % 32; }

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

// Values from inactive lanes

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

// Masks and branches as in real programs

KERNEL short_circuit_vote(int* o, const int* a) {
  int t = threadIdx.x, r = 0;
  if (a[t] > 10 && __any_sync(FULL, a[t] == 14)) r = 1;  // expect: warp participation
  o[t] = r;
}
KERNEL ternary_shuffle(int* o, const int* a) {
  int t = threadIdx.x;
  int v = a[t];
  o[t] = t % 32 ? v - __shfl_up_sync(FULL, v, 1) : v;  // expect: warp participation
}
KERNEL continue_before_shuffle(int* o, const int* a) {
  int t = threadIdx.x, s = 0;
  for (int i = 0; i < 4; i++) {
    if ((a[t] + i) % 3 == 0) continue;
    s += __shfl_xor_sync(FULL, i + t, 1);  // expect: warp participation
  }
  o[t] = s;
}
KERNEL grid_stride_tail(int* o, const int* a) {
  int t = threadIdx.x, best = 0;
  for (int i = t; i < 100; i += blockDim.x) {
    int v = a[i];
    best = max(best, __reduce_max_sync(FULL, v));  // expect: warp participation
  }
  o[t] = best;
}
KERNEL switch_by_lane(int* o) {
  int t = threadIdx.x, v = t;
  switch (t % 4) {
    case 0: v = __shfl_sync(FULL, v, 4); break;  // expect: warp participation
    case 1: v += 3; break;
    default: v = 0;
  }
  o[t] = v;
}
KERNEL wrong_tile_mask(int* o) {
  int t = threadIdx.x, w = 8;
  unsigned m = ((1u << w) - 1) << (lane() / w);
  o[t] = __shfl_xor_sync(m, t, 1);  // expect: warp participation
}
KERNEL mask_off_by_one(int* o) {
  int t = threadIdx.x, n = 12, v = t;
  unsigned m = (1u << (n - 1)) - 1;
  if (t < n) v = __shfl_sync(m, v, 0);  // expect: warp participation
  o[t] = v;
}
KERNEL mask_of_threads_not_lanes(int* o) {  // 64 threads
  int t = threadIdx.x, v = t;
  unsigned m = __ballot_sync(FULL, t < 48);
  if (t < 40) v = __shfl_xor_sync(m, v, 1);  // expect: warp participation
  o[t] = v;
}
KERNEL stale_activemask(int* o, const int* a) {
  int t = threadIdx.x, s = 0;
  unsigned m = __activemask();
  for (int i = 0; i < a[t] % 4; i++) {
    s += __shfl_sync(m, i, 0);  // expect: warp participation
    o[t] = s;
  }
  o[t] = s + 1;
}
KERNEL lambda_in_a_branch(int* o) {
  int t = threadIdx.x;
  auto first = [&](int v) { return __shfl_sync(FULL, v, 0); };  // expect: warp participation
  int r = t;
  if (t % 32 > 3) r = first(t);
  o[t] = r;
}
KERNEL sum_of_eight_in_a_branch(int* o) {
  int t = threadIdx.x, v = t;
  if (t < 8) {
    for (int k = 4; k; k /= 2) v += __shfl_down_sync(FULL, v, k);  // expect: warp participation
    if (t == 0) o[0] = v;
  } else o[t] = 1;
}
KERNEL broadcast_from_other_half(int* o) {
  int t = threadIdx.x, h = t % 32 / 16, v = t;
  unsigned m = h ? 0xffff0000u : 0x0000ffffu;
  v = __shfl_sync(m, v, 16 - 16 * h + 3);  // expect: warp participation
  o[t] = v;
}
KERNEL shuffle_width_of_segment_outside(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 8 < 4) v = __shfl_down_sync(0x0f0f0f0fu, v, 2, 8);  // expect: warp participation
  o[t] = v;
}
KERNEL width_is_no_power_of_two(int* o) {
  int t = threadIdx.x;
  o[t] = __shfl_down_sync(FULL, t, 1, 12);  // expect: warp participation
}
KERNEL bitonic_in_a_branch(int* o, const int* a) {
  int t = threadIdx.x, v = a[t];
  for (int k = 2; k <= 32; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      if ((t & j) == 0) {
        int w = __shfl_xor_sync(FULL, v, j);  // expect: warp participation
        v = min(v, w);
      } else {
        int w = __shfl_down_sync(FULL, v, j);
        v = max(v, w);
      }
    }
  o[t] = v;
}
KERNEL half_floats(int* o) {
  int t = threadIdx.x;
  __half2 h = __floats2half2_rn(t, 1.f);
  if (t & 16) h = __hadd2(h, __shfl_xor_sync(0xffff0000u, h, 16));  // expect: warp participation
  o[t] = __low2float(h);
}
KERNEL recursive_like_loop(int* o, const int* a) {
  int t = threadIdx.x, x = a[t] + 1, steps = 0;
  while (x != 1) {
    x = x & 1 ? 3 * x + 1 : x / 2;
    steps++;
    if (__all_sync(FULL, x == 1)) break;  // expect: warp participation
    o[t] = steps;
  }
  o[t] = steps + 1;
}
KERNEL sync_in_the_last_warp(int* o) {  // 80 threads
  __shared__ int s[96];
  int t = threadIdx.x;
  s[t] = t;
  if (t < 72) {
    __syncwarp();  // expect: warp participation
    o[t] = s[t ^ 1];
  } else o[t] = 0;
}
KERNEL match_in_half(int* o, const int* a) {
  int t = threadIdx.x; unsigned m = 0;
  if (t % 32 >= 8) m = __match_any_sync(FULL, a[t]);  // expect: warp participation
  o[t] = m;
}
KERNEL match_all_with_a_mask_of_others(int* o, const int* a) {
  int t = threadIdx.x, p;
  o[t] = __match_all_sync(0xf0f0f0f0u, a[t], &p);  // expect: warp participation
}
KERNEL redux_mask_differs(int* o) {
  int t = threadIdx.x;
  o[t] = __reduce_add_sync(t % 32 == 5 ? 0x20u : FULL, t);  // expect: warp participation
}
KERNEL peel_without_new_mask(int* o, const int* a) {
  int t = threadIdx.x, key = a[t] % 3;
  unsigned m = FULL;
  while (true) {
    int first = __shfl_sync(m, key, 0);  // expect: warp participation
    if (key == first) { o[t] = first; break; }
    key--;
  }
}
KERNEL segmented_sum(int* o, const int* a) {
  int t = threadIdx.x, key = t / 5, v = a[t];
  for (int k = 1; k < 32; k *= 2) {
    if (t % 32 >= k) {
      int w = __shfl_up_sync(FULL, v, k);  // expect: warp participation
      if (t / 5 == key) v += w;
    }
  }
  o[t] = v;
}
KERNEL mma_for_some_lanes_in_loop(int* o) {
  int t = threadIdx.x;
  int c0 = 0, c1 = 0;
  for (int i = 0; i < (t % 32 < 4 ? 2 : 3); i++)
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(c0), "+r"(c1) : "r"(t), "r"(i));  // expect: warp participation
  o[t] = c0 + c1;
}
KERNEL cluster_arrive_by_one(int* o) {
  int t = threadIdx.x;
  if (t % 32 == 0) asm volatile("barrier.cluster.arrive.aligned;");  // expect: warp participation
  o[t] = t;
}
KERNEL barrier_in_half_a_warp(int* o) {
  int t = threadIdx.x;
  if (t % 32 < 16) __syncthreads();  // expect: divergent barrier
  o[t] = t;
}
KERNEL shared_word(int* o) {
  __shared__ int s[32];
  int t = threadIdx.x;
  s[t / 4] = t;  // expect: shared race
  __syncthreads();
  o[t] = s[t / 4];
}
KERNEL global_word_by_modulo(int* o) {
  int t = threadIdx.x;
  o[t % 16] = t / 16;  // expect: order dependent
}
KERNEL global_bytes(int* o) {  // 32 threads
  char* c = (char*)o;
  int t = threadIdx.x;
  c[t / 3] = t;  // expect: order dependent
}
KERNEL global_vector(int* o) {  // 32 threads
  int t = threadIdx.x;
  ((int4*)o)[t / 2] = make_int4(1, 2, t, 4);  // expect: order dependent
}
KERNEL generic_word(int* o) {  // 32 threads
  __shared__ int s[2];
  int t = threadIdx.x;
  int* p = t < 16 ? o + t / 4 : s;
  if (t < 17) *p = t;  // expect: order dependent
  o[40] = 1;
}
KERNEL row_sums_of_24(int* o, const int* a) {  // 96 threads
  int t = threadIdx.x, row = t / 24, col = t % 24;
  int v = a[t];
  for (int k = 8; k; k >>= 1) v += __shfl_down_sync(0xffffffu << (row * 24 % 32), v, k);  // expect: warp participation
  if (col == 0) o[row] = v;
}
KERNEL ballot_in_else_if(int* o, const int* a) {
  int t = threadIdx.x, r = 0;
  if (a[t] < 8) r = 1;
  else if (a[t] < 16) r = __popc(__ballot_sync(FULL, a[t] < 12));  // expect: warp participation
  else r = 3;
  o[t] = r;
}
KERNEL lane0_skips(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 != 0) {
    v += __shfl_up_sync(FULL, v, 1);  // expect: warp participation
  }
  o[t] = v;
}
KERNEL do_while(int* o, const int* a) {
  int t = threadIdx.x, n = a[t] % 3, s = 0;
  do {
    s += __shfl_xor_sync(FULL, n, 16);  // expect: warp participation
  } while (n-- > 0);
  o[t] = s;
}
KERNEL goto_out(int* o, const int* a) {
  int t = threadIdx.x;
  if (a[t] == 9) goto done;
  __syncwarp();  // expect: warp participation
  o[t] = 2;
  return;
done:
  o[t] = 1;
}
KERNEL mask_from_thread_index(int* o) {  // the shift is too large in the lanes of warp 1
  int t = threadIdx.x;
  unsigned m = (1ull << t) | 1u;
  o[t] = __any_sync(m, 1);  // expect: warp participation
}
KERNEL loads_wmma_in_a_loop_per_lane(int* o) {
  __shared__ __align__(32) half s[512];
  int t = threadIdx.x;
  for (int i = t; i < 512; i += 64) s[i] = i;
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  for (int i = 0; i < 1 + t % 2; i++) wmma::load_matrix_sync(fa, s + 16 * i, 16);  // expect: warp participation
  o[t] = __half2float(fa.x[0]);
}
KERNEL wmma_misaligned_in_shared(int* o) {
  __shared__ __align__(32) half s[600];
  int t = threadIdx.x;
  for (int i = t; i < 600; i += 64) s[i] = i;
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::load_matrix_sync(fa, s + 4, 16);  // expect: misaligned
  o[t] = __half2float(fa.x[0]);
}
KERNEL wmma_stride_of_20(int* o) {
  __shared__ __align__(32) half s[600];
  int t = threadIdx.x;
  for (int i = t; i < 600; i += 64) s[i] = i;
  __syncthreads();
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fa;
  wmma::load_matrix_sync(fa, s, 20);  // expect: error
  o[t] = __half2float(fa.x[0]);
}
KERNEL wmma_c_stride_of_17(int* o) {
  __shared__ __align__(32) float s[600];
  int t = threadIdx.x;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 1.f);
  wmma::store_matrix_sync(s, c, 17, wmma::mem_col_major);  // expect: error
  o[t] = s[t];
}
KERNEL ldmatrix_by_t_lt_16(int* o) {
  __shared__ __align__(16) half s[512];
  int t = threadIdx.x;
  for (int i = t; i < 512; i += 64) s[i] = i;
  __syncthreads();
  unsigned r0 = 0, r1 = 0, at = __cvta_generic_to_shared(s + t % 16 * 8);
  if (t < 16)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(at));  // expect: warp participation
  o[t] = r0 + r1;
}
KERNEL mma_after_continue(int* o, const int* a) {
  int t = threadIdx.x; float d[4] = {};
  unsigned x = 0x3c003c00;
  for (int i = 0; i < 3; i++) {
    if (a[t] == i) continue;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%4}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(x));  // expect: warp participation
  }
  o[t] = d[0];
}
KERNEL bar_in_lane_loop(int* o, const int* a) {
  int t = threadIdx.x;
  for (int i = 0; i < t % 2 + 1; i++) __syncthreads();  // expect: divergent barrier
  o[t] = 1;
}
KERNEL named_barrier_by_half(int* o) {
  int t = threadIdx.x;
  if (t % 32 < 16) asm volatile("bar.sync 1, 64;");  // expect: deadlock
  else asm volatile("bar.sync 2, 64;");
  o[t] = t;
}
KERNEL barrier_and_syncwarp(int* o) {
  int t = threadIdx.x;
  if (t % 32 == 0) __syncthreads();
  else { __syncwarp(); __syncthreads(); }  // expect: warp participation
  o[t] = t;
}
KERNEL global_by_hash(int* o, const int* a) {
  int t = threadIdx.x;
  o[a[t] % 16] = t;  // expect: order dependent
}
KERNEL last_element(int* o, const int* a) {
  int t = threadIdx.x;
  if (a[t] > 5) o[0] = a[t];  // expect: order dependent
}
KERNEL max_without_atomic(int* o, const int* a) {
  int t = threadIdx.x;
  if (a[t] > o[0]) o[0] = a[t];  // expect: order dependent
}
KERNEL struct_store(int* o, const int* a) {  // 32 threads
  int t = threadIdx.x;
  struct S { int x, y; };
  ((S*)o)[t % 8] = S{t % 8, a[t]};  // expect: order dependent
}
KERNEL named_barrier_by_half_a_warp(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  if (t < 16) {
    asm volatile("bar.sync 1, 32;" ::: "memory");  // expect: divergent barrier
    o[t] = s[t ^ 1];
  } else o[t] = 0;
}
KERNEL arrives_in_two_halves(int* o) {
  int t = threadIdx.x;
  if (t < 32) {
    if (t < 16) asm volatile("bar.arrive 1, 96;" ::: "memory");  // expect: warp participation
    else asm volatile("bar.arrive 1, 96;" ::: "memory");
  } else asm volatile("bar.sync 1, 96;" ::: "memory");
  o[t] = t;
}
KERNEL ldmatrix_misaligned(int* o) {
  __shared__ __align__(16) int s[80];
  int t = threadIdx.x, v = 0;
  s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4 + 2);
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at));  // expect: misaligned
  o[t] = v;
}
KERNEL wrong_mask_and_index(int* o, const int* a) {
  int t = threadIdx.x;
  o[t] = a[__shfl_xor_sync(1u, t * 1000000, 1)];  // expect: warp participation
}

// .aligned instructions and guards

KERNEL guarded_ldmatrix(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x, v = 0;
  s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4);
  asm volatile("{.reg .pred p; setp.lt.u32 p, %2, 16; @p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1]; }" : "+r"(v) : "r"(at), "r"(t));  // expect: warp participation
  o[t] = v;
}
KERNEL guarded_shuffle_wrong(int* o) {
  int t = threadIdx.x, v = t;
  asm volatile("{.reg .pred p; setp.lt.u32 p, %1, 8; @p shfl.sync.bfly.b32 %0, %0, 1, 31, 0xfe; }" : "+r"(v) : "r"(t));  // expect: warp participation
  o[t] = v;
}

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

// Instructions of a warpgroup

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
extern "C" __global__ void __launch_bounds__(384, 1) setmaxnreg_beyond_the_block(int*);
KERNEL setmaxnreg_beyond_the_block(int* o) {  // 384 threads
  int t = threadIdx.x;
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");  // expect: warp participation
  }
  if (t < 256) o[t] = t;
}
