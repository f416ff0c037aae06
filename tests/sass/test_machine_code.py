"""Counts for kernels whose machine code differs strongly from the PTX."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cases import LAUNCHES

import gemmlab
from gemmlab import sass
from gemmlab.cli.app import main
from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.cubin import tools
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.sass import machine

WARPS, THREADS = "smsp__inst_executed.sum", "smsp__thread_inst_executed.sum"


def analysed(name):
    launch = LAUNCHES[name]
    return sass.analyse(launch.artifact(), launch.run())


def rows(name):
    return {(row.what, row.access): row for row in analysed(name).differences}


def test_as_many_threads_enter_every_block_as_leave_it():
    found = analysed("nested-branches")
    entering = [0] * len(found.code.blocks)
    entering[0] = found.counted.blocks[0].threads
    for block, executed in zip(found.code.blocks, found.counted.blocks, strict=True):
        assert executed.warps <= executed.threads <= 32 * executed.warps
        if len(block.edges) == 1 and block.edges[0].target >= 0:
            entering[block.edges[0].target] += executed.threads
    for executed, least in zip(found.counted.blocks, entering, strict=True):
        assert executed.threads >= least


@pytest.mark.parametrize(
    ("name", "what", "access"),
    [
        ("spills", "spilled", "local load"),
        ("bitonic-sort", "merged into another access or eliminated", "shared load"),
        ("scan", "predicated: issued with no active thread", "shared load"),
        ("shared-float-atomics", "compare-and-swap loop; iterations not counted", "shared atomic"),
        ("unrolled", "duplicated or split", "global load"),
        ("calls", "called", "polynomial"),
        ("integer-division-wide", "called", "__cuda_sm20_div_s64"),
        ("integer-division", "assumed never called", "__cuda_sm20_div_s64"),
    ],
)
@pytest.mark.slow
def test_what_ptxas_did_is_told(name, what, access):
    assert (what, access) in rows(name)


def test_a_plain_kernel_differs_in_nothing():
    assert analysed("rolled").differences == ()


def test_a_loop_that_ptxas_unrolled_loads_as_often_as_the_ptx():
    (row,) = analysed("unrolled").differences
    assert row.ptx == row.machine == 4 * 103
    assert row.lines == (27,)


# The PTX has 16 iterations of the inner loop in one block; ptxas unrolls all four trips of it.
WHOLE = """\
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float tile[64];
  int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) {
    tile[t] = x[64 * i + t];
    __syncthreads();
    for (int j = 0; j < 64; ++j) sum += tile[(t + j) % 64];
    __syncthreads();
  }
  y[t] = sum;
}
"""


def test_a_loop_that_ptxas_unrolled_altogether_loads_as_often_as_the_ptx():
    artifact = compile_cuda(WHOLE)
    args = [np.ones(256, np.float32), np.zeros(64, np.float32)]
    run = gemmlab.emulate(artifact, grid=1, block=64, args=args)
    counters = sass.analyse(artifact, run).counters
    assert counters["smsp__inst_executed_op_shared_ld.sum"] == 2 * 4 * 64
    assert counters["smsp__inst_executed_op_shared_st.sum"] == 2 * 4


# Each wmma.mma becomes two HMMA, and each load of A and B four LDG: no copies of the loop.
WMMA = """\
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void k(const half* a, const half* b, float* c, int k) {
  fragment<matrix_a, 16, 16, 16, half, row_major> left;
  fragment<matrix_b, 16, 16, 16, half, col_major> right;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    load_matrix_sync(left, a + i, k);
    load_matrix_sync(right, b + i, k);
    mma_sync(sum, left, right, sum);
  }
  store_matrix_sync(c, sum, 16, mem_row_major);
}
"""


def test_a_product_that_becomes_two_instructions_is_no_unrolled_loop():
    artifact = compile_cuda(WMMA)
    args = [*(np.zeros(16 * 256, np.float16) for _ in range(2)), np.zeros(256, np.float32), 256]
    run = gemmlab.emulate(artifact, grid=1, block=32, args=args)
    counters = sass.analyse(artifact, run).counters
    assert counters["smsp__inst_executed_op_global_ld.sum"] == 256 // 16 * 8


def test_what_cannot_be_counted_says_why(monkeypatch, tmp_path):
    launch = LAUNCHES["rolled"]
    artifact, run = launch.artifact(), launch.run()
    with pytest.raises(CompileError, match="no machine code"):
        sass.analyse(replace(artifact, cubin=None), run)
    assert sass.counters(replace(artifact, cubin=None), run) == {}

    def missing(tool):
        raise MissingDependencyError(f"{tool.name} is not installed; run: pip install it")

    monkeypatch.setattr(tools, "_path", missing)
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    machine.disassemble.cache_clear()
    with pytest.raises(MissingDependencyError, match="nvidia-cuda-nvdisasm is not installed"):
        sass.analyse(artifact, run)
    assert sass.counters(artifact, run) == {}


def test_the_disassembly_is_kept(monkeypatch, tmp_path):
    artifact = LAUNCHES["unrolled"].artifact()
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    machine.disassemble.cache_clear()
    first = machine.disassemble(artifact.cubin, artifact.entry)
    machine.disassemble.cache_clear()
    monkeypatch.setattr(tools, "run", None)
    again = machine.disassemble(artifact.cubin, artifact.entry)
    assert (again.instructions, again.blocks) == (first.instructions, first.blocks)


def test_a_file_elsewhere_is_not_disassembled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path / "cache"))
    cubins = []
    for folder in ("one", "another"):
        path = tmp_path / folder / "kernel.cu"
        path.parent.mkdir()
        path.write_text(KERNEL)
        cubins.append(gemmlab.load(path).cubin)
    other = gemmlab.load(KERNEL.replace("0.5f", "0.25f")).cubin
    assert cubins[0] != cubins[1]  # the paths are in their debug sections
    assert cubins[0] and cubins[1] and other
    first = tools.sass(cubins[0], ptx_lines=True, words=True)
    monkeypatch.setattr(tools, "run", None)
    assert tools.sass(cubins[1], ptx_lines=True, words=True) == first
    with pytest.raises(TypeError):  # not found in the cache
        tools.sass(other)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(64), b"\xff" * 200])
def test_other_bytes_are_no_cubin(data):
    with pytest.raises(CompileError, match=f"these {len(data)} bytes are not a cubin"):
        tools.sass(data)


KERNEL = """\
//! gemmlab args=x:f32[n],n n=1000 block=256 grid=4
extern "C" __global__ void halve(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 0.5f;
}
"""


@pytest.mark.slow
def test_the_command_line_tells_differences(tmp_path, capsys):
    path = tmp_path / "kernel.cu"
    path.write_text(KERNEL)
    with pytest.raises(SystemExit):
        main(["emulate", str(path)])
    told = capsys.readouterr().out
    assert WARPS in told and "count machine instructions" in told
    with pytest.raises(SystemExit):
        main(["emulate", str(path), "--sass"])
    assert "has the same memory accesses as the PTX" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["emulate", str(path), "--sass", "--json"])
    told = json.loads(capsys.readouterr().out)
    blocks = told["machine_code"]["blocks"]
    assert told["machine_code"]["differences"] == []
    for name, unit in ((WARPS, "warps"), (THREADS, "threads")):
        assert told["counters"][name] == sum(b["instructions"] * b[unit] for b in blocks)


def test_without_machine_code_the_command_line_says_that_counts_are_of_ptx(
    tmp_path, capsys, monkeypatch
):
    path = tmp_path / "kernel.cu"
    path.write_text(KERNEL)

    def missing(*_):
        raise MissingDependencyError("nvdisasm is not installed; run: pip install it")

    monkeypatch.setattr(sass, "analyse", missing)
    with pytest.raises(SystemExit):
        main(["emulate", str(path)])
    told = capsys.readouterr().out
    assert WARPS not in told
    assert "Only PTX instructions are counted: nvdisasm is not installed" in told


def test_a_climb_counts_machine_code(capsys):
    with pytest.raises(SystemExit):
        main(["climb", "--size", "16", "--rungs", "naive", "--device", "emulated", "--json"])
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert record["counters"][WARPS] > 0


SUM = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry sum(.param .u64 x)
{
.reg .b32 %i, %s, %t; .reg .b64 %x; .reg .f32 %a, %b, %sum; .reg .pred %p;
.shared .align ALIGNMENT .b8 w[256];
ld.param.u64 %x, [x]; mov.u32 %s, w; mov.u32 %t, %tid.x; shl.b32 %t, %t, 2; add.u32 %t, %t, %s;
ld.global.f32 %sum, [%x]; st.shared.f32 [%t], %sum; bar.sync 0; mov.u32 %i, 0;
ROUND:
ld.shared.f32 %a, [%s];
ld.shared.f32 %b, [%s+4];
add.f32 %sum, %sum, %a; add.f32 %sum, %sum, %b; add.u32 %s, %s, 8; add.u32 %i, %i, 1;
setp.lt.u32 %p, %i, 4; @%p bra ROUND;
st.global.f32 [%x], %sum; ret;
}
"""


@pytest.mark.parametrize(
    ("alignment", "machine"),
    [
        (16, 2),  # across the iterations of the loop, which is unrolled
        (4, 8),  # nvJitLink trusts the declaration, not the variable's address
    ],
)
def test_what_ptxas_joins_otherwise_is_told(alignment, machine):
    artifact = gemmlab.load(SUM.replace("ALIGNMENT", str(alignment)), arch="sm_90a")
    run = gemmlab.emulate(artifact, grid=1, block=32, args=[np.ones(1, np.float32)])
    assert run.counters["smsp__inst_executed_op_shared_ld.sum"] == 4
    code = sass.analyse(artifact, run)
    assert code.counters["smsp__inst_executed_op_shared_ld.sum"] == machine
    told = {(row.what, row.access) for row in code.differences}
    assert (
        "vectorized differently than the emulator assumes; affects wavefronts",
        "shared load",
    ) in told
