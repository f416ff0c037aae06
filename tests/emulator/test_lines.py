"""Counters per line are attributed to their instructions and add up to the launch's."""

import numpy as np
import pytest

import gemmlab
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.errors import BudgetError
from gemmlab.kernels import ladder
from gemmlab.lab import views

CUDA = """\
__global__ void f(const float* x, float* y) {
  __shared__ float s[1024];
  int i = threadIdx.x;
  s[i] = x[2 * i];
  __syncthreads();
  if (i % 2) y[i] = s[(32 * i) % 1024];
}
"""
LOADS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORES = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"


def ran(name, shape):
    rung, problem = ladder.find(name), problems.find(name.split(":")[0])
    case = problem.case(dict(zip(problem.axes, shape, strict=True)), "row", problem.families[0], 0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    geometry = rung.geometry(rung.config, case.shape)
    args = [given[parameter.name] for parameter in problem.parameters]
    return gemmlab.emulate(
        compile_rung(rung), grid=geometry.grid, block=geometry.block, args=args
    ), rung


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param("gemm:float4", (130, 70, 20), marks=pytest.mark.slow),
        ("sum:tree-interleaved", (3000,)),
    ],
)
def test_lines_add_up_to_the_launch(name, shape):
    run, _ = ran(name, shape)
    for lines in (run.by_ptx_line(), run.by_source_line()):
        names = next(iter(lines.values()))
        total = {name: sum(line[name] for line in lines.values()) for name in names}
        assert total == {name: run.counters[name] for name in names}


def test_a_rungs_lines_are_those_of_its_file():
    run, rung = ran("transpose:shared", (64, 64))
    (conflicted,) = [at for at, counted in run.by_source_line().items() if counted[CONFLICTS]]
    file, _, number = conflicted.rpartition(":")
    assert file.endswith("shared.py")
    assert "sT[" in views.source(rung).splitlines()[int(number) - 1]


def test_no_line_is_of_the_function_that_launches_a_cute_kernel():
    """An endless loop without memory accesses has only such locations."""
    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u32 n)
{
.reg .u32 %r<2>;
.loc 1 7 0
ld.param.u32 %r1, [n];
.loc 2 9 0
L: bra L;
}
.file 1 "/home/ada/k.py"
.file 2 "/usr/lib/gemmlab/compile/cute_launch.py"
"""
    with pytest.raises(BudgetError) as error:
        gemmlab.emulate(gemmlab.load(text), grid=1, block=32, args=[1], max_instructions=1000)
    assert error.value.site is not None and error.value.site.source == "/home/ada/k.py:7"


def test_cuda_lines(tmp_path):
    path = tmp_path / "f.cu"
    path.write_text(CUDA)
    x, y = np.ones(256, np.float32), np.zeros(128, np.float32)
    run = gemmlab.emulate(gemmlab.load(path), grid=1, block=128, args=[x, y])
    lines = {int(at.rpartition(":")[2]): c for at, c in run.by_source_line().items() if at}
    assert {n for n, c in lines.items() if c[LOADS]} == {4}
    assert {n for n, c in lines.items() if c[STORES] or c[CONFLICTS]} == {6}
    assert lines[6][STORES] == 4 * 4  # every other float of 128 bytes, four warps
    assert lines[6][CONFLICTS] == 4 * 15  # 16 active lanes, all in bank 0
    assert sum(c["ptx_branch_divergent.sum"] for c in lines.values()) == 4
