"""What the judge says is to be improved first."""

import pytest

from gemmlab.lab.submission import start

# Values of a block are combined in shared memory first.
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
def test_an_atomic_for_every_load_is_too_many(judge, problem):
    found = judge(start.text(problem, "cu"))
    assert "combine values in a block first" in found.advice[0]


@pytest.mark.parametrize("text", [SUM, HISTOGRAM])
def test_one_for_every_block_is_not(judge, text):
    found = judge(text)
    assert found.verdict == "pass"
    assert not any("combine" in sentence for sentence in found.advice)


def test_repeats_are_a_share_of_all_wavefronts_atomics_too(judge):
    """Bytes that meet in a bin are no bank conflict that padding would help against."""
    [met] = [sentence for sentence in judge(HISTOGRAM).advice if "wavefronts" in sentence]
    assert met.startswith("atomic conflicts") and "pad" not in met
    assert 0 < float(met.partition("(")[2].partition("%")[0]) < 100
