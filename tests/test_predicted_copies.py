"""Predicted times of kernels with mbarriers, bulk copies and wgmma, whose warps have tasks of their
own."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

import gemmlab
from gemmlab import problems, timing
from gemmlab.cubin.code import Block, Code, Edge, Instruction
from gemmlab.emulator.program import Block as PtxBlock
from gemmlab.emulator.tensor_cores import matrices, wgmma
from gemmlab.kernels import ladder
from gemmlab.lab import predicted
from gemmlab.timing import instructions, roles
from gemmlab.timing.facts import gather
from gemmlab.timing.mbarriers import Mbarrier
from gemmlab.timing.prediction import estimate
from gemmlab.timing.signals import ARRIVE, WAIT, Signal, Signals

H200 = timing.model("H200")

# Warp 0 copies tiles of 4 KB into a ring of two; the others add them up.
RING = """
typedef unsigned u32;
__device__ u32 at(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void wait(u32 barrier, u32 parity) {
  asm volatile("{.reg .pred p; W%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra W%=;}"
               :: "r"(barrier), "r"(parity) : "memory");
}
extern "C" __global__ void sums(float *x, float *y, int tiles) {
  __shared__ __align__(128) float ring[2][1024];
  __shared__ __align__(8) unsigned long long full[2], empty[2];
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; i++) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(full + i)));
      asm volatile("mbarrier.init.shared.b64 [%0], 96;" :: "r"(at(empty + i)));
    }
  __syncthreads();
  if (threadIdx.x < 32) {
    if (threadIdx.x == 0)
      for (int t = 0; t < tiles; t++) {
        wait(at(empty + t % 2), t / 2 & 1 ^ 1);
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 4096;"
                     :: "r"(at(full + t % 2)) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1], 4096, [%2];" :: "r"(at(ring[t % 2])),
                     "l"(x + (blockIdx.x * tiles + t) * 1024), "r"(at(full + t % 2)) : "memory");
      }
  } else {
    float sum = 0;
    for (int t = 0; t < tiles; t++) {
      wait(at(full + t % 2), t / 2 & 1);
      for (int i = 0; i < 32; i++) sum += ring[t % 2][(threadIdx.x + 32 * i) % 1024];
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(at(empty + t % 2)) : "memory");
    }
    y[blockIdx.x * 96 + threadIdx.x - 32] = sum;
  }
}
"""
TILES, BLOCKS = 40, 8


@pytest.mark.slow
def test_warps_have_roles_and_wait_for_the_slower_side():
    kernel = gemmlab.load(RING, arch=H200.target)
    x, y = np.zeros(BLOCKS * TILES * 1024, np.float32), np.zeros(BLOCKS * 96, np.float32)
    args = [x, y, TILES]
    found = gather(kernel, (BLOCKS, 1, 1), (128, 1, 1), args, 0, H200.parameters)
    who = [role.warps for role, _ in found.classes[0][1]]
    assert who == [(0,), (1, 2, 3)]
    assert set(found.signals.nbytes.values()) == {4096, 0}
    assert set(found.signals.count.values()) == {1, 96}
    usual = estimate(found, H200.parameters)
    far = estimate(found, replace(H200.parameters, bulk_latency=3000))
    # two tiles are on their way at a time
    more = TILES / 2 * (3000 - H200.parameters.bulk_latency)
    assert far.cycles - usual.cycles == pytest.approx(more, rel=0.2)
    assert far.limiter == "long scoreboard"
    assert sum(far.stalls.values()) == pytest.approx(1)


def test_a_role_is_what_a_warp_enters_and_can_still_reach():
    # 1: the loop that copies; 2, 3: what others do; 4: its end, which none has seen; 5: the end
    targets = [[1, 2], [1, 5], [3], [3, 4], [5], []]
    blocks = [PtxBlock(i, i + 1, targets=some) for i, some in enumerate(targets)]
    entered = np.zeros((4, 6), bool)
    entered[:, 0] = True
    entered[0, 1] = entered[1:, 2] = entered[1:, 3] = True
    copying, others = roles.roles(blocks, entered, [1, 3, 3, 3])
    assert (copying.warps, others.warps) == ((0,), (1, 2, 3))
    assert copying.share[[1, 3, 4]].tolist() == [1, 0, 0]
    assert others.share[4] == pytest.approx(1 / 3)
    assert copying.share[5] == others.share[5] == 1 / 4


def polling(*targets):
    """Blocks of machine code, of which those that poll are marked by a None among their targets."""
    ops = ["SYNCS.PHASECHK.TRANS64.TRYWAIT" if None in some else "NOP" for some in targets]
    code = [Instruction(16 * i, "", op, "P0, [R0], R1", 1) for i, op in enumerate(ops)]
    ends = [[Edge(t) for t in some if t is not None] for some in targets]
    return Code(code, {}, [Block(i, i + 1, own) for i, own in enumerate(ends)])


def test_a_loop_that_polls_is_executed_once_per_entry():
    assert roles.without_polls(polling([1], [1, 2, None], [-1]), [4, 900, 4]) == [4, 4, 4]


def test_a_detour_of_a_warp_that_has_looked_before_is_not_executed():
    code = polling([2, 1, None], [-1], [3], [3, 4, None], [1])
    assert roles.without_polls(code, [4, 4, 2, 77, 2]) == [4, 4, 0, 0, 0]


def test_a_ring_goes_on_as_it_began():
    turns = [Signal(8, 1), Signal(9, 1), Signal(8, 0), Signal(9, 0), Signal(8, 1)]
    known = Signals(turns={(8, WAIT, 0): turns}, rings={(5, WAIT): 8, (6, ARRIVE): 8})
    assert [known.turn(5, WAIT, 0, n) for n in range(7)] == [*turns, Signal(9, 1), Signal(8, 0)]
    assert known.turn(5, WAIT, 1, 0) is None  # another warp does not wait there
    assert known.turn(6, ARRIVE, 0, 0) is None


def test_a_phase_needs_all_arrivals_and_bytes():
    one: Mbarrier[str] = Mbarrier(count=2, nbytes=100)
    assert one.phase(1) == -1  # the phase before the first is over
    assert one.phase(0) == 0
    one.add(1, 0, 10.0)
    one.add(0, 100, 500.0)
    assert one.completed == []
    one.add(1, 0, 20.0)
    assert one.completed == [500.0]
    assert (one.phase(0), one.phase(1)) == (0, 1)


@pytest.mark.parametrize(
    ("opcode", "operands", "cycles"),
    [
        ("HGMMA.64x128x16.F32", "R24, gdesc[UR8], R24, gsb0", 64),
        ("HGMMA.64x8x16.F32", "R24, gdesc[UR8], R24", 18),  # of shared memory, as measured
        ("HGMMA.64x32x16.F32", "R24, gdesc[UR8], R24", 24),
        ("HGMMA.64x32x16.F32", "R24, R4, gdesc[UR8], R24", 16),
        ("HMMA.16816.F32", "R4, R8, R12, R4", 1),
        ("HMMA.1688.F32.TF32", "R4, R8, R12, R4", 1),
        ("HMMA.1688.F32", "R4, R8, R12, R4", 0.5),
        ("IMMA.16832.S8.S8", "R4, R8, R12, R4", 1),
    ],
)
def test_work_of_tensor_cores(opcode, operands, cycles):
    one = Instruction(0, "", opcode, operands, 1)
    [[op]] = instructions.prepare(Code([one], {}, [Block(0, 1, [])]))
    assert op.pipe == instructions.TENSOR
    assert op.work == cycles
    assert op.commits == ("gsb0" in operands)


NAMED = """
extern "C" __global__ void named(float *x) {
  float sum = threadIdx.x;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 2000; i++) sum = sum * 0.5f + 1.0f;
    x[threadIdx.x] = sum;
    asm volatile("bar.arrive 1, 64;" ::: "memory");
  } else if (threadIdx.x < 64) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    x[threadIdx.x] = x[threadIdx.x - 32];
  } else {
    asm volatile("bar.sync 2, 32;" ::: "memory");
    x[threadIdx.x] = sum;
  }
}
"""


@pytest.mark.slow
def test_warps_wait_at_the_barrier_of_their_name():
    kernel = gemmlab.load(NAMED, arch=H200.target)
    found = gather(kernel, (1, 1, 1), (96, 1, 1), [np.zeros(96, np.float32)], 0, H200.parameters)
    ops = [op for body in found.ops for op in body if op.kind == instructions.BARRIER]
    assert sorted((op.barrier, op.members) for op in ops) == [("0x1", 2), ("0x1", 2), ("0x2", 1)]
    assert [".ARV" in op.code.opcode for op in ops].count(True) == 1
    # the third warp does not wait for the first, which multiplies 2,000 times
    assert estimate(found, H200.parameters).cycles > 2000


@pytest.mark.parametrize(
    ("name", "unit"), [("tensor-core", matrices), ("wgmma", wgmma)], ids=["mma", "wgmma"]
)
@pytest.mark.slow
def test_the_traced_blocks_multiply_nothing_on_tensor_cores(monkeypatch, name, unit):
    """Products decide nothing that a prediction needs, and would take most of its time."""
    multiply = Mock(wraps=unit.multiply)
    monkeypatch.setattr(unit, "multiply", multiply)
    rung, problem = ladder.find(name, "row", "gemm"), problems.find("gemm")
    case = problem.case({"m": 256, "n": 256, "k": 64}, "row", "normal", 0)
    _, found = predicted.predict(rung, case, H200)
    assert found.time_s > 0
    multiply.assert_not_called()
