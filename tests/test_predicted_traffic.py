"""What a launch moves between L1, L2 and device memory, by the model of time."""

import numpy as np
import pytest

import gemmlab
from gemmlab import timing
from gemmlab.timing import caches, facts, traffic
from gemmlab.timing.sample import Load

H200 = timing.model("H200")


def load(*sectors, turn=1):
    found = np.full((1, 1, 32), -1)
    found[0, 0, : len(sectors)] = sectors
    return Load(0, turn, found, 1.0, "load")


def test_l1_keeps_lines_until_others_need_their_room():
    loads = [load(0, 1, turn=0), load(0, 1), load(1, 2)]
    found = caches.l1(loads, 1024, frozenset())[0]
    assert (found.sectors, found.misses, found.lines) == (2, 0.5, 1)
    thrashed = [load(0, turn=0), load(8), load(0)]
    assert caches.l1(thrashed, 128, frozenset())[0].misses == 1


def test_data_that_a_block_reads_again_come_from_l2():
    seen = Load(0, 0, np.array([[[0, 1, 2, 3]]]), 1.0, "load")
    again = Load(1, 0, np.array([[[0, 1, 2, 3]]]), 1.0, "load")
    found = caches.l1([seen, again], 0, frozenset())
    assert found[0].fresh == 4 and found[1].fresh == 0


TABLE = """
extern "C" __global__ void looked_up(float *out, const float *table, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = table[i % size];
}
"""


@pytest.mark.parametrize("megabytes", [2, 40])
def test_a_table_stays_in_l2_if_it_fits_there_beside_what_passes(megabytes):
    """Each wave of blocks reads a part of it, writes as much, and 200 MB pass in all."""
    kernel, size = gemmlab.load(TABLE, arch=H200.target), megabytes << 18
    args = [np.zeros(50 << 20, np.float32), np.zeros(size, np.float32), size]
    found = facts.gather(kernel, (50 << 10, 1, 1), (1024, 1, 1), args, 0, H200.parameters)
    read = [far for far, _ in traffic.Sources(found, H200.parameters).of_line.values()]
    assert read == [pytest.approx(megabytes / 200 if megabytes == 2 else 1, rel=0.05)]


PASSED = """
extern "C" __global__ void passed(float4 *to, const float4 *from) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 v = from[i];
  if (v.x > 1e30f || STORES) to[i] = v;
}
"""


@pytest.mark.parametrize("stores", ["0", "1"])
def test_lines_that_others_wrote_go_to_device_memory_as_a_launch_takes_their_place(stores):
    """16 MB are read, and stored or not. Where lines of others are 40 % of L2, 6.4 MB of them make
    room for 16 MB; what a launch stores itself then stays in L2 as long as there is room."""
    kernel = gemmlab.load(PASSED.replace("STORES", stores), arch=H200.target)
    args = [np.zeros(1 << 22, np.float32) for _ in range(2)]
    found = facts.gather(kernel, (4096, 1, 1), (256, 1, 1), args, 0, H200.parameters)
    sources = traffic.Sources(found, H200.parameters)
    read, written = (0.4, 1) if stores == "0" else (0, 1)
    assert sources.evicted == pytest.approx(read * H200.parameters.dram_writes, rel=0.05)
    if stores == "1":
        assert sources.written == pytest.approx(written * H200.parameters.dram_writes, rel=0.05)


TWICE = """
extern "C" __global__ void twice(float *out, const float *x, int size) {
  float sum = 0;
  const float *mine = x + (size_t)blockIdx.x * size;
  for (int i = threadIdx.x; i < size; i += 256) sum += mine[i];
  __syncthreads();
  for (int i = threadIdx.x; i < size; i += 256) sum += mine[i] * sum;
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize("words", [1 << 10, 1 << 14])
def test_what_is_read_again_has_left_l2_if_more_was_read_since(words):
    """1056 blocks at a time read 4 MB or 69 MB, of which L1 holds little."""
    kernel, blocks = gemmlab.load(TWICE, arch=H200.target), 1056 * 2
    args = [np.zeros(blocks * 256, np.float32), np.zeros(blocks * words, np.float32), words]
    found = facts.gather(kernel, (blocks, 1, 1), (256, 1, 1), args, 0, H200.parameters)
    sources = traffic.Sources(found, H200.parameters)
    moved = [
        sources.of_line[line][0] * of.misses
        for line, of in sorted(found.lookups.items())
        if not of.is_store
    ]
    first, again = moved[: len(moved) // 2], moved[len(moved) // 2 :]
    assert sum(first) > 0
    assert sum(again) > 0.5 * sum(first) if words == 1 << 14 else sum(again) < 0.1 * sum(first)


APART = """
extern "C" __global__ void apart(float *y, const float *x, int step, int turns) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  for (int turn = 0; turn < turns; turn++) sum += x[i * step + turn];
  y[i] = sum;
}
"""


@pytest.mark.parametrize(("step", "turns", "alone"), [(1, 1, 0), (16, 1, 1), (16, 16, 0)])
def test_a_sector_whose_neighbour_is_not_read_costs_more(step, turns, alone):
    """Neighbouring threads read neighbouring elements, elements 64 bytes apart, or walk on."""
    kernel, n = gemmlab.load(APART, arch=H200.target), 1 << 20
    args = [np.zeros(n, np.float32), np.zeros(n * step, np.float32), step, turns]
    found = facts.gather(kernel, (n // 256, 1, 1), (256, 1, 1), args, 0, H200.parameters)
    costs = traffic.Sources(found, H200.parameters).cost.values()
    assert {*costs} == {1 + alone * (H200.parameters.lone_sectors - 1)}


RIM = """
extern "C" __global__ void rim(float *y, const float *x, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float sum = x[i];
  if (threadIdx.x < 8) sum += x[(i + n - 256) % n];
  y[i] = sum;
}
"""


def test_what_a_neighbouring_block_reads_comes_from_device_memory_once():
    kernel, n = gemmlab.load(RIM, arch=H200.target), 1 << 24
    args = [np.zeros(n, np.float32), np.zeros(n, np.float32), n]
    found = facts.gather(kernel, (n // 256, 1, 1), (256, 1, 1), args, 0, H200.parameters)
    new = [found.shared[line].new for line in sorted(found.shared)]
    assert new == [1.0, pytest.approx(0, abs=0.01)]


def test_a_warp_waits_for_a_line_that_it_has_asked_for():
    """Its second load hits in L1 what the first has asked for; another warp's does not count."""
    sectors = np.full((1, 2, 32), -1)
    sectors[0, :, 0] = [7, 8]
    other = sectors[:, ::-1]
    loads = [Load(0, 0, sectors, 1, "load"), Load(1, 0, sectors, 1, "load")]
    found = caches.l1([*loads, Load(2, 0, other, 1, "load")], 1 << 14, frozenset())
    assert [found[i].own for i in range(3)] == [0, 1, 0]
    assert [found[i].misses for i in range(3)] == [1, 0, 0]
