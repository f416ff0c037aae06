"""The judge's advice on what to improve first."""

import pytest

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
    [advice] = [sentence for sentence in judge(HISTOGRAM).advice if "wavefronts" in sentence]
    assert advice.startswith("atomic conflicts") and "pad" not in advice
    assert 0 < float(advice.partition("(")[2].partition("%")[0]) < 100
