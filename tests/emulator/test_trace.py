"""A trace records the memory accesses of the first block without side effects."""

import numpy as np
import pytest

import gemmlab
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator import Trace
from gemmlab.emulator.trace import KEPT
from gemmlab.kernels import ladder


def run(name, shape, trace=None):
    """Return the counters and output of one rung on the emulator."""
    rung = ladder.find(name)
    problem = problems.find(rung.problem)
    shape = dict(zip(problem.axes, shape, strict=True))
    case = problem.case(shape, rung.layout, problem.families[0], 0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    grid, block, dynamic_smem = rung.geometry(rung.config, shape)
    args = [given[parameter.name] for parameter in problem.parameters]
    artifact = compile_rung(rung)
    done = gemmlab.emulate(
        artifact, grid=grid, block=block, args=args, dynamic_smem=dynamic_smem, trace=trace
    )
    return done.counters, given[case.output]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("naive", (70, 45, 33)), ("float4", (130, 260, 9)), ("sum:tree-interleaved", (3000,))],
)
@pytest.mark.slow
def test_a_trace_changes_nothing(name, shape):
    counters, output = run(name, shape)
    traced_counters, traced_output = run(name, shape, Trace())
    assert traced_counters == counters
    assert np.array_equal(traced_output, output)


def test_addresses_are_those_of_the_first_block():
    trace = Trace()
    run("transpose:shared", (128, 192), trace)
    code = trace.program.function.instructions
    by_name = {(site.space, site.operation): site for site in trace.sites.values()}
    assert len(trace.sites) == len(by_name) == 4
    source, result = trace.allocations
    lanes = np.arange(32)

    load = by_name["global", "load"]
    assert load.width == 4 and len(load.executions) == 16  # 64 rows, four at a time
    assert code[load.instruction].root == "ld"
    warps = np.arange(8)[:, None]  # two per each of four rows
    for turn, (addresses, active, _) in enumerate(load.executions):
        row, column = 4 * turn + warps // 2, 32 * (warps % 2) + lanes
        assert active.all()
        assert np.array_equal(addresses - source.address, 4 * (192 * row + column))

    column_read, *_ = by_name["shared", "load"].executions[0]
    assert np.array_equal(np.diff(column_read[0]), np.full(31, 4 * 64))
    stored, *_ = by_name["global", "store"].executions[-1]
    assert np.array_equal(stored[7] - result.address, 4 * (128 * 63 + 32 + lanes))


def test_lanes_that_take_no_part_are_told():
    trace = Trace()
    run("naive", (1, 20, 3), trace)
    for site in trace.sites.values():
        assert site.executions
        for addresses, active, _ in site.executions:
            assert np.array_equal(active[0], np.arange(32) < 20)
            assert not active[1:].any() and not addresses[~active].any()


def test_so_many_executions_are_kept():
    trace = Trace()
    run("sum:shared-serial", (2048,), trace)
    assert max(len(site.executions) for site in trace.sites.values()) == KEPT
