"""Whole CUDA C++ kernels on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import gemmlab

CUDA = """
extern "C" __global__ void columns(const float *a, float *sums, int rows, int cols) {
    __shared__ float part[8][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    float s = 0.0f;
    for (int r = threadIdx.y; r < rows; r += 8)
        if (x < cols) s += a[r * cols + x];
    part[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y == 0 && x < cols) {
        for (int k = 1; k < 8; k++) s += part[k][threadIdx.x];
        sums[x] = s;
    }
}
extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, int n) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    if (local[threadIdx.x]) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
extern "C" __global__ void total(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = i < n ? x[i] : 0;
    for (int k = 16; k; k >>= 1) v += __shfl_down_sync(0xffffffffu, v, k);
    if ((threadIdx.x & 31) == 0) atomicAdd(out, v);
}
extern "C" __global__ void below(const float *x, int *out, float limit) {
    int c = __syncthreads_count(x[threadIdx.x] < limit);
    unsigned m = __ballot_sync(0xffffffffu, x[threadIdx.x] < limit);
    out[threadIdx.x] = c * 100 + __popc(m & ((1u << (threadIdx.x & 31)) - 1));
}
"""


@pytest.fixture(scope="module")
def cuda(tmp_path_factory):
    path = tmp_path_factory.mktemp("cuda") / "kernels.cu"
    path.write_text(CUDA)
    return lambda entry: gemmlab.load(path, entry=entry)


@pytest.mark.slow
def test_cuda_column_sums(cuda):
    a = np.random.default_rng(0).integers(-9, 9, (37, 75)).astype(np.float32)
    sums = np.zeros(75, np.float32)
    gemmlab.emulate(cuda("columns"), grid=3, block=(32, 8), args=[a, sums, 37, 75])
    np.testing.assert_array_equal(sums, a.sum(axis=0))


def test_cuda_histogram(cuda):
    data = np.random.default_rng(0).integers(0, 200, 5000).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    run = gemmlab.emulate(cuda("histogram"), grid=4, block=256, args=[data, bins, data.size])
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))
    assert run.counters["smsp__inst_executed_op_shared_atom.sum"] > 0


def test_cuda_warp_sum(cuda):
    x, out = np.arange(1000, dtype=np.int32), np.zeros(1, np.int32)
    gemmlab.emulate(cuda("total"), grid=8, block=128, args=[x, out, x.size])
    assert out[0] == x.sum()


def test_cuda_votes(cuda):
    x, out = np.random.default_rng(0).random(128).astype(np.float32), np.zeros(128, np.int32)
    gemmlab.emulate(cuda("below"), grid=1, block=128, args=[x, out, 0.5])
    before = [(x[i // 32 * 32 : i] < 0.5).sum() for i in range(128)]
    np.testing.assert_array_equal(out, (x < 0.5).sum() * 100 + np.array(before))
