"""The ladders' kernels, control flow and clocks on the native tier against the NumPy tier."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from both_tiers import both
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import needs_native
from random_programs import Flow
from snippets import ptx

from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator import run
from gemmlab.kernels import ladder

RNG = np.random.default_rng(11)
pytestmark = needs_native

SHAPES = {
    "gemm": {"m": 40, "n": 70, "k": 33},
    "transpose": {"m": 70, "n": 150},
    "softmax": {"m": 70, "n": 150},
    "attention": {"t": 70},
}
_KERNELS = {
    rung.kernel: (name, rung.name)
    for name in problems.NAMES
    for rung in ladder.rungs(name)
    if rung.launches is None
}
RUNGS = list(_KERNELS.values())  # other rungs have another configuration of one of these kernels


@pytest.mark.parametrize(("name", "rung"), RUNGS)
@pytest.mark.slow
def test_ladder_kernels(name: str, rung: str) -> None:
    """In the configuration that other tests compile, too: for most, `emulator/test_checks.py`."""
    problem, found = problems.find(name), ladder.find(rung, None, name)
    size = 3000 if len(problem.axes) == 1 else 300
    sizes = SHAPES.get(name, dict.fromkeys(problem.axes, size))
    case = problem.case(sizes, found.layout, problem.families[0], 0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    artifact = compile_rung(replace(found, rewrite=None), "sm_90a")
    grid, block, smem = found.geometry(found.config, case.shape)
    args = [given[parameter.name] for parameter in problem.parameters]
    if found.workspace:
        args.append(np.zeros(found.workspace(found.config, case.shape), np.uint8))
    both(artifact.ptx, args, grid, block, smem, artifact.entry)


BLOCKS = [(32, 1, 1), (40, 1, 1), (32, 3, 1), (8, 4, 3), (5, 1, 1)]


@settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.randoms(), st.sampled_from(BLOCKS))
@pytest.mark.slow
def test_random_control_flow(random: Random, block: tuple[int, int, int]) -> None:
    flow = Flow(random)
    threads = block[0] * block[1] * block[2]
    x = RNG.integers(0, 64, (2 * threads, 4)).astype(np.uint32)
    text = [
        ".reg .u32 %x<4>, %t, %m, %s, %l, %tid; mov.u32 %l, %laneid; .reg .b64 %base;",
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x;",
        "mov.u32 %r5, %ntid.y; mad.lo.u32 %r3, %r3, %r5, %r2; mad.lo.u32 %r1, %r3, %r4, %r1;",
        f"mov.u32 %r6, %ctaid.x; mad.lo.u32 %tid, %r6, {threads}, %r1; ld.param.u64 %base, [p0];",
        "mad.wide.u32 %base, %tid, 16, %base; ld.global.v4.u32 {%x0, %x1, %x2, %x3}, [%base];",
        "setp.eq.u32 %p1, %x0, 3;",
        *flow.lines(3),
        "STORE: st.global.v4.u32 [%base], {%x0, %x1, %x2, %x3}; ret;",
    ]
    both(ptx("\n".join(text), ["u64"]), [x], (2, 1, 1), block)


CLOCKS = {"%clock": "u32", "%clock_hi": "u32", "%clock64": "u64"}


@pytest.mark.parametrize("threads", [32, 96])
@pytest.mark.parametrize("clock", CLOCKS)
def test_clocks_count_the_instructions_of_a_warp(clock: str, threads: int) -> None:
    """Warps in lockstep all read the same value, as do the lanes of one warp after they
    diverged."""
    type_ = CLOCKS[clock]
    diverge = "setp.lt.u32 %p1, %r0, 9; @%p1 bra NEXT; add.u32 %r2, %r2, 1; NEXT:"
    body = f""".reg .{type_} %t<3>; mov.{type_} %t0, {clock}; ld.param.u64 %q0, [p0];
        mov.u32 %r0, %tid.x; mad.wide.u32 %q0, %r0, 24, %q0; mov.u32 %r1, 0;
        mov.{type_} %t1, {clock};
        LOOP: add.u32 %r1, %r1, 1; {diverge if threads == 32 else ""}
        setp.lt.u32 %p2, %r1, 5; @%p2 bra LOOP; mov.{type_} %t2, {clock};
        st.global.{type_} [%q0], %t0; st.global.{type_} [%q0+8], %t1;
        st.global.{type_} [%q0+16], %t2; ret;"""
    x = np.zeros((2 * threads, 3), np.uint64)
    both(ptx(body, ["u64"]), [x], (2, 1, 1), (threads, 1, 1))
    if clock != "%clock_hi":
        first, second, third = x[0].tolist()
        assert (first, second) == (0, 4 * 5) and third >= 4 * (6 + 5 * 3)


@pytest.mark.parametrize("tier", ["numpy", "native"])
@pytest.mark.parametrize("timer", ["%globaltimer", "%globaltimer_lo"])
def test_what_comes_later_reads_a_later_time(timer: str, tier: str) -> None:
    """Block 0 waits for block 1, which has read the timer more often."""
    body = f"""ld.param.u64 %q0, [p0]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 0;
        .reg .u64 %t; @%p1 bra WAIT; mov.u32 %r2, 9;
        READ: mov.u64 %t, {timer}; sub.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra READ;
        st.global.u64 [%q0+8], %t; membar.gl; st.volatile.global.u32 [%q0+16], 1; ret;
        WAIT: ld.volatile.global.u32 %r3, [%q0+16]; setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT;
        mov.u64 %t, {timer}; st.global.u64 [%q0], %t; ret;"""
    x = np.zeros(3, np.uint64)
    run(ptx(body, ["u64"]), None, (2, 1, 1), (1, 1, 1), [x], tier=tier)
    assert x[0] > x[1] > 0


@pytest.mark.parametrize("tier", ["numpy", "native"])
def test_a_delay_by_the_clock_ends(tier: str) -> None:
    body = """ld.param.u64 %q0, [p0]; mov.u64 %q1, %clock64;
        WAIT: mov.u64 %q2, %clock64; sub.u64 %q2, %q2, %q1; setp.lt.u64 %p1, %q2, 9000;
        @%p1 bra WAIT; st.global.u64 [%q0], %q2; ret;"""
    x = np.zeros(1, np.uint64)
    run(ptx(body, ["u64"]), None, (1, 1, 1), (64, 1, 1), [x], tier=tier)
    assert x.tolist() == [9012]
