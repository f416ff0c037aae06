"""CUDA C++ as people write it for nvcc compiles here, with no toolkit and no host compiler."""

import numpy as np

import gemmlab

SOURCE = """
#include <cassert>
#include <cmath>
#include <cstdio>
#include <stdint.h>
#include <algorithm>
#include <vector>
#include <cuda_runtime.h>

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
int twice(int x) { return 2 * x; }

namespace lab {
__global__ void root(float* x, uint n) {
    uint i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n > 0);
    if (i < n) x[i] = std::min(sqrtf(x[i]), float(twice(int32_t(ceil_div(5, 2)))));
}
}
"""


def test_standard_headers_host_helpers_and_namespaces(tmp_path):
    path = tmp_path / "root.cu"
    path.write_text(SOURCE)
    kernel = gemmlab.load(path, entry="lab::root")
    x = np.arange(64, dtype=np.float32)
    gemmlab.emulate(kernel, grid=2, block=32, args=[x, 60])
    expected = np.arange(64, dtype=np.float32)
    expected[:60] = np.minimum(np.sqrt(expected[:60]), 6)
    np.testing.assert_array_equal(x, expected)


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    blocked = tmp_path / "cache"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("GEMMLAB_CACHE", str(blocked))
    path = tmp_path / "root.cu"
    path.write_text(SOURCE)
    assert gemmlab.load(path, entry="lab::root").cubin
