"""The judge's advice on what to improve first."""

from collections import defaultdict

import pytest

from gemmlab.lab import advice, metrics
from gemmlab.lab.submission import start

# Each block combines its values in shared memory first.
SUM = """\
//! gemmlab problem=sum block=256 grid=ceil_div(n,256)
extern "C" __global__ void total(const float* x, float* out, long long n) {
  __shared__ float tile[256];
  int t = threadIdx.x;
  long long i = blockIdx.x * 256ll + t;
  tile[t] = i < n ? x[i] : 0;
  for (int step = 128; step; step /= 2) {
    __syncthreads();
    if (t < step) tile[t] += tile[t + step];
  }
  if (t == 0) atomicAdd(out, tile[0]);
}
"""
HISTOGRAM = """\
//! gemmlab problem=histogram block=256 grid=ceil_div(n,2048)
extern "C" __global__ void count(const unsigned char* data, unsigned* counts, long long n) {
  __shared__ unsigned own[256];
  int t = threadIdx.x;
  own[t] = 0;
  __syncthreads();
  for (long long i = blockIdx.x * 2048ll + t; i < n && i < (blockIdx.x + 1) * 2048ll; i += 256)
    atomicAdd(&own[data[i]], 1u);
  __syncthreads();
  atomicAdd(&counts[t], own[t]);
}
"""


@pytest.mark.parametrize("problem", ["sum", "histogram"])
def test_one_global_atomic_per_load_is_too_many(judge, problem):
    found = judge(start.text(problem, "cu"))
    assert "combine values in a block first" in found.advice[0]


@pytest.mark.parametrize("text", [SUM, HISTOGRAM])
def test_one_global_atomic_per_block_is_not(judge, text):
    found = judge(text)
    assert found.verdict == "pass"
    assert not any("combine" in sentence for sentence in found.advice)


def test_atomic_conflicts_are_a_share_of_all_wavefronts(judge):
    """Atomics to the same bin are not bank conflicts, and padding does not help."""
    [told] = [sentence for sentence in judge(HISTOGRAM).advice if "wavefronts" in sentence]
    assert told.startswith("atomic conflicts") and "pad" not in told
    assert 0 < float(told.partition("(")[2].partition("%")[0]) < 100


@pytest.mark.parametrize(("nbytes", "is_coalesced"), [(16, True), (4, False)])
def test_asynchronous_copies_of_16_bytes_take_16_sectors(nbytes, is_coalesced):
    counters = defaultdict(int, {metrics.PTX_INSTRUCTIONS: 500})
    counters |= {metrics.GLOBAL_LOAD_REQUESTS: 10, metrics.GLOBAL_LOAD_SECTORS: 160}
    text = f"cp.async.ca.shared.global [%r1], [%rd2+64], {nbytes}, %r3;"
    assert is_coalesced == (not advice.sentences(counters, {}, "sum", text))


@pytest.mark.parametrize("products", [0, 24])
def test_a_kernel_whose_wgmma_reads_tiles_reuses_them(products):
    counters = defaultdict(int, {metrics.PTX_INSTRUCTIONS: 500})
    counters |= {metrics.GLOBAL_LOAD_REQUESTS: 40, metrics.MATRIX_PRODUCTS: products}
    told = advice.sentences(counters, {}, "gemm", "")
    assert any("no reuse" in sentence for sentence in told) == (not products)
