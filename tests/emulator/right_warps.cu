// Correct kernels that resemble those in planted_warps.cu; 64 threads unless stated.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_fp16.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__ void
__device__ int lane() { return threadIdx.x % 32; }
template <typename T> __device__ T warp_sum(T v) {
  for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(FULL, v, k);
  return v;
}

KERNEL butterfly(int* o) {
  int v = threadIdx.x;
  for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(FULL, v, k);
  o[threadIdx.x] = v;
}
KERNEL scan(int* o) {
  int t = threadIdx.x, v = t;
  for (int k = 1; k < 32; k *= 2) {
    int n = __shfl_up_sync(FULL, v, k);
    if (t % 32 >= k) v += n;
  }
  o[t] = v;
}
KERNEL tree(int* o) {
  int t = threadIdx.x, v = t;
  for (int k = 16; k; k >>= 1) v += __shfl_down_sync(FULL, v, k);
  if (t % 32 == 0) o[t / 32] = v;
}
KERNEL block_sum(int* o) {  // 224 threads
  __shared__ int s[32];
  int t = threadIdx.x, v = t;
  for (int k = 16; k; k >>= 1) v += __shfl_down_sync(FULL, v, k);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t < 32) {
    v = t < blockDim.x / 32 ? s[t] : 0;
    for (int k = 16; k; k >>= 1) v += __shfl_down_sync(FULL, v, k);
    if (t == 0) o[0] = v;
  }
}
KERNEL eight_lanes_sum(int* o) {  // lanes 4 to 7 read inactive lanes, but the result is not used
  int t = threadIdx.x, v = t;
  if (t < 8) {
    for (int k = 4; k; k >>= 1) v += __shfl_down_sync(0xffu, v, k);
    if (t == 0) o[0] = v;
  }
}
KERNEL last_warp_of_48(int* o) {  // 48 threads
  int t = threadIdx.x, v = t;
  for (int k = 8; k; k >>= 1) v += __shfl_xor_sync(FULL, v, k);
  o[t] = v + __popc(__ballot_sync(FULL, t & 1));
}
KERNEL guarded_tail(int* o) {  // 40 threads
  int t = threadIdx.x, v = t;
  for (int k = 16; k; k >>= 1) {
    int n = __shfl_down_sync(FULL, v, k);
    if (t + k < 40) v += n;
  }
  if (t % 32 == 0) o[t / 32] = v;
}
KERNEL ballot_then_shuffle(int* o) {
  int t = threadIdx.x, v = t;
  unsigned m = __ballot_sync(FULL, t % 3 == 0);
  if (t % 3 == 0) v = __shfl_sync(m, t, __ffs(m) - 1);
  o[t] = v;
}
KERNEL leader_by_activemask(int* o) {
  int t = threadIdx.x;
  o[t] = 0;
  if (t % 5 < 2) {
    unsigned m = __activemask();
    int leader = __ffs(m) - 1, old = 0;
    if (t % 32 == leader) old = atomicAdd(o + 100, __popc(m));
    old = __shfl_sync(m, old, leader);
    o[t] = old >= 0;
  }
}
KERNEL coalesced(int* o) {
  int t = threadIdx.x, v = 0;
  if (t % 3) {
    auto g = cg::coalesced_threads();
    v = g.shfl(t, 0) + g.size() + cg::reduce(g, 1, cg::plus<int>()) + g.any(t == 4);
    g.sync();
  }
  o[t] = v;
}
KERNEL tiles(int* o) {
  int t = threadIdx.x;
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int v = cg::reduce(tile, t, cg::plus<int>()) + tile.shfl_up(t, 1) + tile.ballot(t & 1) + tile.match_any(t / 2);
  v += cg::inclusive_scan(tile, t);
  tile.sync();
  o[t] = v;
}
KERNEL tiles_in_a_branch(int* o) {
  int t = threadIdx.x, v = t;
  auto tile = cg::tiled_partition<4>(cg::this_thread_block());
  if (t / 4 % 3 == 1) v = tile.shfl_xor(t, 1) + tile.all(t > 3);
  o[t] = v;
}
KERNEL tiles_loop_as_often_as_they_like(int* o) {
  int t = threadIdx.x, v = 0;
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  for (int i = 0; i <= t / 16; i++) v += tile.shfl(t + i, i);
  o[t] = v;
}
KERNEL labeled(int* o) {
  int t = threadIdx.x;
  auto g = cg::labeled_partition(cg::coalesced_threads(), t % 3);
  o[t] = g.shfl(t, 0) + g.size();
}
KERNEL half_masks(int* o) {
  int t = threadIdx.x;
  unsigned m = t % 32 < 16 ? 0xffffu : 0xffff0000u;
  o[t] = __shfl_xor_sync(m, t, 8) + __ballot_sync(m, t & 1) + __reduce_add_sync(m, t);
}
KERNEL half_in_a_branch(int* o) {
  int t = threadIdx.x, v = t;
  if (t % 32 < 16) v = __shfl_xor_sync(0xffffu, v, 4);
  else v = __shfl_down_sync(0xffff0000u, v, 3, 16);
  o[t] = v;
}
KERNEL both_sides_of_a_branch(int* o) {
  int t = threadIdx.x, v;
  if (t % 32 < 16) v = __shfl_xor_sync(FULL, t + 1, 16);
  else v = __shfl_xor_sync(FULL, t + 2, 16);
  o[t] = v;
}
KERNEL syncwarp_on_both_sides(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  if (t & 1) __syncwarp();
  else __syncwarp();
  o[t] = s[t ^ 1];
}
KERNEL exits_early(int* o) {
  int t = threadIdx.x;
  if (t >= 40) return;
  o[t] = __ballot_sync(FULL, t & 1) + __any_sync(FULL, t == 3);
  __syncwarp();
}
KERNEL exits_early_and_shuffles_below(int* o) {
  int t = threadIdx.x;
  if (t >= 40) return;
  int v = __shfl_up_sync(FULL, t, 1) + __shfl_sync(FULL, t, 0);
  o[t] = v;
}
KERNEL whole_warps_exit(int* o) {
  int t = threadIdx.x;
  if (t >= 32) return;
  o[t] = __shfl_xor_sync(FULL, t, 16);
}
KERNEL own_lane_alone(int* o) {
  int t = threadIdx.x;
  __syncwarp(1u << t % 32);
  o[t] = __shfl_sync(1u << t % 32, t, t) + __reduce_or_sync(1u << t % 32, t);
}
KERNEL past_the_segment(int* o) {
  int t = threadIdx.x;
  o[t] = __shfl_down_sync(FULL, t, 3, 8) + __shfl_up_sync(FULL, t, 5, 8);
}
KERNEL loops_of_other_lengths(int* o, const int* a) {
  int t = threadIdx.x, v = 0;
  for (int i = 0; i < a[t]; i++) v += i;
  o[t] = __shfl_xor_sync(FULL, v, 1);
}
KERNEL loop_while_any(int* o, const int* a) {
  int t = threadIdx.x, left = a[t], v = 0;
  while (__any_sync(FULL, left > 0)) {
    if (left > 0) v += left--;
    __syncwarp();
  }
  o[t] = v;
}
KERNEL mask_shrinks_in_the_loop(int* o, const int* a) {
  int t = threadIdx.x, v = 0;
  unsigned m = FULL;
  for (int i = 0;; i++) {
    m = __ballot_sync(m, i < a[t]);
    if (i >= a[t]) break;
    v += __shfl_sync(m, t, __ffs(m) - 1);
  }
  o[t] = v;
}
KERNEL peel_equal_keys(int* o, const int* a) {
  int t = threadIdx.x, key = a[t] % 4;
  for (bool done = false; !done;) {
    unsigned m = __activemask();
    int first = __shfl_sync(m, key, __ffs(m) - 1);
    if (key == first) {
      unsigned same = __match_any_sync(__activemask(), key);
      o[t] = __popc(same) > 0;
      done = true;
    }
  }
}
KERNEL match_then_reduce(int* o, const int* a) {
  int t = threadIdx.x;
  unsigned m = __match_any_sync(FULL, a[t] % 4);
  o[t] = __reduce_add_sync(m, t);
}
KERNEL one_lane_works_and_tells(int* o, const int* a) {
  int t = threadIdx.x, v = 0;
  if (t % 32 == 0) for (int i = 0; i < 10; i++) v += a[i];
  o[t] = __shfl_sync(FULL, v, 0);
}
KERNEL warps_go_their_ways(int* o) {
  int t = threadIdx.x, v = t;
  if (t < 32) v = __reduce_max_sync(FULL, v);
  else { __syncwarp(); v = __shfl_xor_sync(FULL, v, 2); }
  __syncthreads();
  o[t] = v;
}
KERNEL lock_by_one_lane(int* o) {
  int t = threadIdx.x;
  if (t % 32 == 0) {
    while (atomicCAS(o + 200, 0, 1) != 0) {}
    __threadfence();
    o[201] = ((volatile int*)o)[201] + 1;
    __threadfence();
    atomicExch(o + 200, 0);
  }
  __syncwarp();
  o[t] = 1;
}
KERNEL wide_values(int* o) {
  int t = threadIdx.x;
  double d = __shfl_xor_sync(FULL, t * 0.5, 4);
  long long l = __shfl_down_sync(FULL, t * 1ll << 33, 1);
  o[t] = d + (l >> 33);
}
KERNEL elect(int* o) {
  int t = threadIdx.x, p;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p; }" : "=r"(p));
  o[t] = p;
}
KERNEL switch_by_warp(int* o) {  // 128 threads
  int t = threadIdx.x, v = t;
  switch (t / 32) {
    case 0: v = __shfl_xor_sync(FULL, v, 1); break;
    case 1: v = __ballot_sync(FULL, v & 1); break;
    case 2: v = __reduce_min_sync(FULL, v); break;
    default: v = __match_any_sync(FULL, v / 2);
  }
  o[t] = v;
}

// Masks and branches as in real programs

KERNEL vote_before_and(int* o, const int* a) {
  int t = threadIdx.x;
  bool any = __any_sync(FULL, a[t] == 14);
  o[t] = a[t] > 10 && any;
}
KERNEL ternary_of_a_shuffle(int* o, const int* a) {
  int t = threadIdx.x, v = a[t], w = __shfl_up_sync(FULL, v, 1);
  o[t] = t % 32 ? v - w : v;
}
KERNEL predicated_loop(int* o, const int* a) {
  int t = threadIdx.x, s = 0;
  for (int i = 0; i < 4; i++) {
    int v = __shfl_xor_sync(FULL, i + t, 1);
    if ((a[t] + i) % 3 == 0) continue;
    s += v;
  }
  o[t] = s;
}
KERNEL grid_stride_rounded_up(int* o, const int* a) {
  int t = threadIdx.x, best = 0;
  for (int i = t; i < 128; i += blockDim.x) {
    int v = i < 100 ? a[i] : 0;
    best = max(best, __reduce_max_sync(FULL, v));
  }
  o[t] = best;
}
KERNEL grid_stride_with_ballot_mask(int* o, const int* a) {
  int t = threadIdx.x, best = 0;
  unsigned m = __ballot_sync(FULL, t < 100);
  for (int i = t; i < 100; i += blockDim.x) {
    best = max(best, __reduce_max_sync(m, a[i]));
    m = __ballot_sync(m, i + blockDim.x < 100);
  }
  o[t] = best;
}
KERNEL tile_mask(int* o) {
  int t = threadIdx.x, w = 8;
  unsigned m = ((1u << w) - 1) << (lane() / w * w);
  o[t] = __shfl_xor_sync(m, t, 1) + __popc(__ballot_sync(m, t & 1));
}
KERNEL nested_branches(int* o, const int* a) {
  int t = threadIdx.x, v = 0;
  unsigned m = __ballot_sync(FULL, a[t] > 8);
  if (a[t] > 8) {
    v = __shfl_sync(m, t, __ffs(m) - 1);
    unsigned n = __ballot_sync(m, a[t] & 1);
    if (a[t] & 1) v += __reduce_add_sync(n, 1);
    __syncwarp(m);
  }
  o[t] = v;
}
KERNEL softmax_row(int* o, const int* a) {
  int t = threadIdx.x;
  float v = a[t], top = v;
  for (int k = 16; k; k /= 2) top = fmaxf(top, __shfl_xor_sync(FULL, top, k));
  float e = exp2f(v - top), sum = e;
  for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(FULL, sum, k);
  o[t] = 1000 * e / sum;
}
KERNEL block_sum_of_any_size(int* o) {  // 100 threads
  __shared__ int s[32];
  int t = threadIdx.x, l = t % 32, w = t / 32, warps = (blockDim.x + 31) / 32;
  int v = t, n = min(32, blockDim.x - w * 32);
  for (int k = 16; k; k /= 2) {
    int x = __shfl_down_sync(FULL, v, k);
    if (l + k < n) v += x;
  }
  if (l == 0) s[w] = v;
  __syncthreads();
  if (w == 0) {
    v = l < warps ? s[l] : 0;
    v = warp_sum(v);
    if (l == 0) o[0] = v;
  }
}
KERNEL block_sum_with_mask(int* o) {  // 100 threads
  int t = threadIdx.x, v = t;
  unsigned m = __activemask();
  for (int k = 16; k; k /= 2) {
    int x = __shfl_down_sync(m, v, k);
    if (m >> (t % 32 + k) & 1 && t % 32 + k < 32) v += x;
  }
  if (t % 32 == 0) atomicAdd(o, v);
}
KERNEL two_blocks_of_sums(int* o, const int* a) {  // 256 threads
  __shared__ int s[8];
  int t = threadIdx.x, v = warp_sum(a[t]);
  if (t % 32 == 0) s[t / 32] = v;
  __syncthreads();
  if (t < 8) {
    v = s[t];
    v += __shfl_down_sync(0xffu, v, 4);
    v += __shfl_down_sync(0xffu, v, 2);
    v += __shfl_down_sync(0xffu, v, 1);
    if (t == 0) o[0] = v;
  }
}
KERNEL compaction(int* o, const int* a) {
  int t = threadIdx.x;
  bool keep = a[t] % 3 == 1;
  unsigned m = __ballot_sync(FULL, keep);
  int before = __popc(m & ((1u << lane()) - 1)), base = 0;
  if (lane() == 0) base = atomicAdd(o + 255, __popc(m));
  base = __shfl_sync(FULL, base, 0);
  if (keep) o[base + before] = 1;
}
KERNEL histogram_by_match(int* o, const int* a) {
  int t = threadIdx.x, bin = a[t] % 8;
  unsigned same = __match_any_sync(FULL, bin);
  if (lane() == __ffs(same) - 1) atomicAdd(o + bin, __popc(same));
}
KERNEL transpose_by_shuffles(int* o) {
  int t = threadIdx.x, l = lane(), x[4];
  for (int i = 0; i < 4; i++) x[i] = t * 4 + i;
  for (int i = 0; i < 4; i++) x[i] = __shfl_sync(FULL, x[i], (l + i) & 31);
  o[t] = x[0] + x[1] + x[2] + x[3];
}
KERNEL bitonic(int* o, const int* a) {
  int t = threadIdx.x, v = a[t];
  for (int k = 2; k <= 32; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      int w = __shfl_xor_sync(FULL, v, j);
      bool up = (t & k) == 0, low = (t & j) == 0;
      v = up == low ? min(v, w) : max(v, w);
    }
  o[t] = v;
}
KERNEL segmented_scan(int* o, const int* a) {
  int t = threadIdx.x, v = a[t], l = lane();
  bool head = l % 5 == 0;
  unsigned heads = __ballot_sync(FULL, head);
  int start = 31 - __clz(heads & (FULL >> (31 - l)));
  for (int k = 1; k < 32; k *= 2) {
    int w = __shfl_up_sync(FULL, v, k);
    if (l - k >= start) v += w;
  }
  o[t] = v;
}
KERNEL collatz(int* o, const int* a) {
  int t = threadIdx.x, x = a[t] + 1, steps = 0;
  while (!__all_sync(FULL, x == 1)) {
    if (x != 1) { x = x & 1 ? 3 * x + 1 : x / 2; steps++; }
  }
  o[t] = steps;
}
KERNEL warp_pipeline(int* o) {  // 128 threads
  __shared__ int s[4][32];
  int w = threadIdx.x / 32, l = lane();
  s[w][l] = threadIdx.x;
  __syncwarp();
  for (int k = 16; k; k /= 2) {
    if (l < k) s[w][l] += s[w][l + k];
    __syncwarp();
  }
  if (l == 0) o[w] = s[w][0];
}
KERNEL warp_pipeline_with_masks(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x, l = lane();
  s[t] = t;
  __syncwarp();
  if (l < 16) {
    int v = s[t] + s[t + 16];
    __syncwarp(0xffffu);
    s[t] = v;
    __syncwarp(0xffffu);
    if (l < 8) o[t] = s[t] + s[t + 8];
  }
}
KERNEL queue_of_a_warp(int* o, const int* a) {
  int t = threadIdx.x, left = a[t] % 5, total = 0;
  for (unsigned m; (m = __ballot_sync(FULL, left > 0));) {
    int leader = __ffs(m) - 1;
    int n = __shfl_sync(FULL, left, leader);
    for (int i = lane(); i < n; i += 32) total++;
    if (lane() == leader) left = 0;
  }
  o[t] = total;
}
KERNEL one_dimension_of_two(int* o) {  // 64 threads
  int t = threadIdx.x, row = t / 16;
  int v = __shfl_xor_sync(FULL, t, 8, 16);
  if (row & 1) v += __shfl_sync(0xffff0000u, v, 20);
  o[t] = v;
}
KERNEL loads_for_a_leader(int* o, const int* a) {
  int t = threadIdx.x;
  int v = lane() == 7 ? a[t] : 0;
  v = __shfl_sync(FULL, v, 7);
  o[t] = v;
}
KERNEL uninteresting_lanes(int* o) {
  int t = threadIdx.x, v = t;
  if (lane() < 20) {
    v = __shfl_down_sync(0xfffffu, v, 1);
    o[t] = lane() < 19 ? v : -1;
  } else o[t] = 0;
}
KERNEL stored_where_it_is_known(int* o) {
  int t = threadIdx.x;
  if (lane() < 20) {
    int v = __shfl_down_sync(0xfffffu, t, 4);
    if (lane() < 16) o[t] = v;
  }
}
KERNEL maximum_with_index(int* o, const int* a) {
  int t = threadIdx.x, v = a[t], at = t;
  for (int k = 16; k; k /= 2) {
    int w = __shfl_down_sync(FULL, v, k), i = __shfl_down_sync(FULL, at, k);
    if (w > v || w == v && i < at) { v = w; at = i; }
  }
  if (lane() == 0) o[t / 32] = at;
}
KERNEL doubles(int* o) {
  double v = threadIdx.x;
  v = warp_sum(v);
  if (lane() == 0) o[threadIdx.x / 32] = v;
}
KERNEL halves(int* o) {
  __half2 h = __floats2half2_rn(threadIdx.x, 1.f);
  for (int k = 16; k; k /= 2) h = __hadd2(h, __shfl_xor_sync(FULL, h, k));
  o[threadIdx.x] = __low2float(h) > 0;
}
KERNEL pointer_to_shared(int* o) {
  __shared__ int s[64];
  int t = threadIdx.x;
  s[t] = t;
  __syncthreads();
  unsigned long long p = __shfl_sync(FULL, (unsigned long long)(s + t), 3);
  o[t] = *(int*)p;
}
KERNEL spin_in_lane_order(int* o) {  // 32 threads
  volatile int* turn = o + 100;
  int t = threadIdx.x;
  for (int i = 0; i < 32; i++) {
    if (i == t) *turn = i;
    __syncwarp();
  }
  o[t] = 1;
}
KERNEL mma_by_warps_in_turn(int* o) {  // 128 threads
  int t = threadIdx.x, c0 = 0, c1 = 0;
  for (int i = 0; i < t / 32; i++)
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};" : "+r"(c0), "+r"(c1) : "r"(t), "r"(i));
  o[t] = c0 + c1;
}
KERNEL same_values_in_one_word(int* o, const int* a) {
  int t = threadIdx.x;
  o[t / 8] = t / 8;
  o[100] = 5;
  if (a[t] == 3) o[101] = 1;
}
KERNEL last_writer_by_loop(int* o, const int* a) {
  int t = threadIdx.x;
  if (t == 0) for (int i = 0; i < 10; i++) o[i / 2] = a[i];
}
KERNEL barrier_after_branches(int* o) {
  int t = threadIdx.x, v = 0;
  if (t & 1) { for (int i = 0; i < t; i++) v += i; } else v = 3;
  __syncthreads();
  v += __shfl_xor_sync(FULL, v, 1);
  o[t] = v;
}
KERNEL inner_return(int* o, const int* a) {
  int t = threadIdx.x;
  auto f = [&](int x) { if (x & 1) return x * 3; for (int i = 0; i < x; i++) x += i & 1; return x; };
  int v = f(a[t]);
  o[t] = __shfl_xor_sync(FULL, v, 4) + __popc(__ballot_sync(FULL, v & 1));
}
KERNEL early_exit_then_named_barrier(int* o) {
  int t = threadIdx.x;
  if (t >= 50) return;
  asm volatile("bar.sync 1, 64;" ::: "memory");
  o[t] = t;
}
KERNEL early_exit_then_arrive(int* o) {
  int t = threadIdx.x;
  if (t >= 50) return;
  if (t < 32) asm volatile("bar.sync 1, 64;" ::: "memory");
  else asm volatile("bar.arrive 1, 64;" ::: "memory");
  o[t] = t;
}

// .aligned instructions and guards

KERNEL guarded_ldmatrix_right(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x, v = 0;
  s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4);
  asm volatile("{.reg .pred p; setp.lt.u32 p, %2, 32; @p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1]; }" : "+r"(v) : "r"(at), "r"(t) : "memory");
  o[t] = v;
}
KERNEL guarded_shuffle(int* o) {
  int t = threadIdx.x, v = t;
  asm volatile("{.reg .pred p; setp.lt.u32 p, %1, 8; @p shfl.sync.bfly.b32 %0, %0, 1, 31, 0xff; }" : "+r"(v) : "r"(t));
  o[t] = v;
}

KERNEL ldmatrix_of_one_warp(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x, v = 0;
  s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4);
  if (t < 32) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at) : "memory");
  o[t] = v;
}
KERNEL ldmatrix_after_lanes_parted(int* o) {
  __shared__ __align__(16) int s[64];
  int t = threadIdx.x, v = 0;
  if (t & 1) s[t] = 3 * t; else s[t] = t;
  __syncthreads();
  unsigned at = __cvta_generic_to_shared(s + t % 8 * 4);
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at) : "memory");
  o[t] = v;
}
KERNEL wmma_of_every_other_warp(int* o) {  // 128 threads
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> c;
  if (threadIdx.x / 32 != 2) return;
  wmma::fill_fragment(c, 1);
  wmma::store_matrix_sync(o, c, 16, wmma::mem_row_major);
}
KERNEL movmatrix(int* o) {
  int t = threadIdx.x, v = t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(v));
  o[t] = v;
}
KERNEL one_warpgroup_of_two(int* o) {  // 256 threads
  __shared__ __align__(128) int s[1024];
  int t = threadIdx.x;
  for (int i = t; i < 1024; i += blockDim.x) s[i] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  unsigned long long desc = (__cvta_generic_to_shared(s) >> 4) | 8ull << 16 | 16ull << 32;
  float d[4] = {};
  if (t >= 128) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{ wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %4, 0, 1, 1, 0, 0; }" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(desc) : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  }
  o[t] = d[0];
}
extern "C" __global__ void __launch_bounds__(384, 1) all_registers_of_a_block(int*);
KERNEL all_registers_of_a_block(int* o) {  // 384 threads
  int t = threadIdx.x;
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
  }
  if (t < 256) o[t] = t;
}

// Lanes of a warp that wait separately for an mbarrier or for memory

__device__ unsigned sm(const void* p) { return __cvta_generic_to_shared(p); }
__device__ void init(unsigned long long* b, int n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sm(b)), "r"(n) : "memory"); }
__device__ void arrive(unsigned long long* b) { asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" ::"r"(sm(b)) : "memory"); }
__device__ void expect(unsigned long long* b, int n) { asm volatile("{ .reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], %1; }" ::"r"(sm(b)), "r"(n) : "memory"); }
__device__ bool test(unsigned long long* b, int parity) {
  int ok;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }" : "=r"(ok) : "r"(sm(b)), "r"(parity) : "memory");
  return ok;
}
__device__ void wait(unsigned long long* b, int parity) { while (!test(b, parity)) {} }
__device__ void bulk(void* to, const void* from, int n, unsigned long long* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sm(to)), "l"(from), "r"(n), "r"(sm(b)) : "memory");
}
KERNEL pipeline(int* o, const int* a) {
  __shared__ __align__(128) int s[2][32];
  __shared__ unsigned long long full[2], empty[2];
  int t = threadIdx.x, l = t % 32;
  if (t == 0) {
    for (int i = 0; i < 2; i++) { init(full + i, 1); init(empty + i, 32); }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  if (t < 32) {
    if (l == 0) {
      for (int i = 0; i < 6; i++) {
        if (i >= 2) wait(empty + i % 2, (i / 2 - 1) & 1);
        expect(full + i % 2, 128);
        bulk(s[i % 2], a + 32 * i, 128, full + i % 2);
      }
    }
    __syncwarp();
    o[200 + l] = 1;
  } else {
    int sum = 0;
    for (int i = 0; i < 6; i++) {
      wait(full + i % 2, i / 2 & 1);
      sum += s[i % 2][l] + __shfl_xor_sync(FULL, s[i % 2][l], 1);
      arrive(empty + i % 2);
    }
    o[l] = sum;
  }
}
KERNEL elected_producer(int* o, const int* a) {
  __shared__ __align__(128) int s[32];
  __shared__ unsigned long long full;
  int t = threadIdx.x, l = t % 32;
  if (t == 0) { init(&full, 1); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); asm volatile("fence.proxy.async;" ::: "memory"); }
  __syncthreads();
  if (t < 32) {
    int p;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p; }" : "=r"(p));
    if (p) { expect(&full, 128); bulk(s, a, 128, &full); }
    return;
  }
  wait(&full, 0);
  unsigned at = sm(s + l % 8 * 4), v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(v) : "r"(at) : "memory");
  o[l] = v;
}
KERNEL one_lane_waits_for_the_warp(int* o, const int* a) {
  __shared__ unsigned long long b;
  __shared__ int s[32];
  int t = threadIdx.x, l = t % 32;
  if (t == 0) init(&b, 32);
  __syncthreads();
  if (t >= 32) { s[l] = a[l]; arrive(&b); return; }
  if (l == 0) wait(&b, 0);
  __syncwarp();
  wait(&b, 0);
  o[l] = s[l ^ 3] + __shfl_sync(FULL, s[l], 5);
}
KERNEL spin_then_vote(int* o, const int* a) {
  __shared__ volatile int flag;
  int t = threadIdx.x;
  if (t == 0) flag = 0;
  __syncthreads();
  if (t >= 32) { if (t == 40) flag = 1; }
  else {
    if (t == 7) while (flag == 0) {}
    o[t] = __ballot_sync(FULL, a[t] & 1);
  }
}
KERNEL lanes_wait_for_other_phases(int* o) {
  __shared__ unsigned long long b[4];
  int t = threadIdx.x, l = t % 32;
  if (t < 4) init(b + t, 1);
  __syncthreads();
  if (t >= 32) { for (int i = 0; i < 4; i++) if (l == i) arrive(b + 3 - i); }
  else {
    wait(b + l % 4, 0);
    o[l] = __reduce_add_sync(FULL, l);
    asm volatile("{ .reg .b32 a, c; mov.b32 a, 0; mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {a,c}, {a}, {a}, {a,a}; }");
  }
}
