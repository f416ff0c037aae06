"""The native tier against the NumPy tier: the same bits, the same counters, the same faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import needs_native
from random_programs import Addresses, Flow
from snippets import STORAGE, ptx

from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator import Run, run
from gemmlab.emulator.memory import atomics
from gemmlab.emulator.native import compiler
from gemmlab.emulator.translation import isa
from gemmlab.emulator.translation.emit import floats
from gemmlab.kernels import ladder
from gemmlab.ptx.modifiers import read_opcode

RNG = np.random.default_rng(11)
pytestmark = needs_native


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM compiles fastest, and its code does the same."""
    monkeypatch.setattr(compiler, "EFFORT", 0)


def both(
    text: str,
    args: Sequence[Any],
    grid: tuple[int, int, int] = (1, 1, 1),
    block: tuple[int, int, int] = (32, 1, 1),
    dynamic_smem: int = 0,
    entry: str | None = None,
) -> Run:
    """Run on both tiers; the native one's results stay in `args`."""
    copies = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    wanted = run(text, entry, grid, block, copies, dynamic_smem, tier="numpy")
    found = run(text, entry, grid, block, args, dynamic_smem, tier="native")
    assert (wanted.tier, found.tier) == ("numpy", "native")
    for ours, theirs in zip(args, copies, strict=True):
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(bits(ours), bits(theirs))
    assert found.counters == wanted.counters
    return found


def bits(array: np.ndarray) -> np.ndarray:
    """What memory holds."""
    return array.reshape(-1).view(np.uint8)


# Kernels of the ladders

SHAPES = {"gemm": {"m": 40, "n": 70, "k": 33}, "transpose": {"m": 70, "n": 150}}
RUNGS = [
    (name, rung.name)
    for name in problems.NAMES
    for rung in ladder.rungs(name)
    if rung.launches is None
]


@pytest.mark.parametrize(("name", "rung"), RUNGS)
@pytest.mark.slow
def test_ladder_kernels(name: str, rung: str) -> None:
    problem, found = problems.find(name), ladder.find(rung, None, name)
    sizes = SHAPES.get(name, dict.fromkeys(problem.axes, 3000))
    case = problem.case(sizes, found.layout, problem.families[0], 0)
    given = dict(case.buffers) | dict(case.scalars)
    given[case.output] = np.zeros(case.output_size, case.output_dtype)
    artifact = compile_rung(found, "sm_90a")
    grid, block, smem = found.geometry(found.config, case.shape)
    args = [given[parameter.name] for parameter in problem.parameters]
    if found.workspace:
        args.append(np.zeros(found.workspace(found.config, case.shape), np.uint8))
    both(artifact.ptx, args, grid, block, smem, artifact.entry)


# Arithmetic

KINDS = {"b": "b", "u": "b", "s": "b", "f": "f"}


def register(type_: str) -> str:
    """The type of register that holds a type."""
    return type_ if type_ == "pred" or type_[0] == "f" else f"b{type_[1:]}"


def drawn(type_: str, count: int) -> np.ndarray:
    """Random bits, small numbers and edges."""
    width = int(type_[1:]) // 8
    raw = RNG.integers(0, 256, (count, width), np.uint8).view(f"u{width}").reshape(count)
    small = RNG.integers(0, 70, count).astype(f"u{width}")
    values = np.where(RNG.random(count) < 0.5, raw, small).astype(f"u{width}")
    values[:3] = 0, 1, np.iinfo(values.dtype).max
    if type_[0] != "f":
        return values
    real = values.view(f"f{width}").copy()
    edges = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 2.5], real.dtype)
    normal = RNG.standard_normal(count).astype(real.dtype)
    return np.where(RNG.random(count) < 0.5, normal, RNG.choice([*edges, *real], count)).astype(
        real.dtype
    )


TYPES = ("b16", "b32", "b64", "f32", "f64")


def arithmetic(operations: Sequence[tuple[str, str, Sequence[str], str]]) -> None:
    """Run many instructions on two warps. An operation: opcode, type of the result, types of the
    operands, and more operands as text."""
    lanes = 64
    inputs = [drawn(t, 3 * lanes) for t in TYPES]
    results = {t: sum(register(op[1]) == t for op in operations) for t in (*TYPES, "pred")}
    outputs = [
        np.zeros(max(results[t], 1) * lanes, STORAGE["u32" if t == "pred" else t][2])
        for t in results
    ]
    body = [".reg .u32 %tid; .reg .b64 %base, %at; .reg .pred %pa, %pb, %pc, %px;"]
    body.append("mov.u32 %tid, %tid.x;")
    for n, type_ in enumerate(TYPES):
        width = int(type_[1:]) // 8
        body.append(f".reg .{type_} %{type_}a, %{type_}b, %{type_}c, %{type_}x;")
        body.append(f"ld.param.u64 %base, [p{n}]; mad.wide.u32 %at, %tid, {width}, %base;")
        for k, name in enumerate("abc"):
            body.append(f"ld.global.{type_} %{type_}{name}, [%at+{k * lanes * width}];")
    for k, name in enumerate("abc"):
        body.append(f"and.b32 %r1, %b32{name}, 1; setp.eq.u32 %p{name}, %r1, {k % 2};")
    place = dict.fromkeys(results, 0)
    for opcode, result, types, more in operations:
        target = register(result)
        sources = [
            f"%{'p' if t == 'pred' else register(t)}{n}" for t, n in zip(types, "abc", strict=False)
        ]
        destination = "%px" if target == "pred" else f"%{target}x"
        body.append(f"{opcode} {', '.join([destination, *sources, *filter(None, [more])])};")
        if target == "pred":
            body.append("selp.u32 %r1, 1, 0, %px;")
        width = outputs[list(results).index(target)].itemsize
        body.append(f"ld.param.u64 %base, [p{len(TYPES) + list(results).index(target)}];")
        body.append(f"mad.wide.u32 %at, %tid, {width}, %base;")
        stored = "b32 [%at+{}], %r1" if target == "pred" else f"{target} [%at+{{}}], %{target}x"
        body.append(f"st.global.{stored.format(place[target] * lanes * width)};")
        place[target] += 1
    text = ptx("\n".join([*body, "ret;"]), ["u64"] * (len(inputs) + len(outputs)))
    both(text, [*inputs, *outputs], block=(lanes, 1, 1))


def operation(root: str, form: isa.Form, type_: str, extra: str = "") -> tuple[Any, ...]:
    size = type_ if type_ == "pred" else int(type_[1:])
    wide = type_ if type_ == "pred" else f"{type_[0]}{2 * size}"
    letters = {"T": type_, "U": type_, "S": type_, "W": wide, "I": "u32", "P": "pred"}
    sources = [
        type_ if letter == "W" and k < 2 else letters[letter]
        for k, letter in enumerate(form.operands)
    ]
    more = ""
    if root == "lop3":
        sources, more = sources[:3], "0x96"
    if root in ("selp", "bfi"):  # four operands, or a predicate after two
        sources, more = (sources[:2], "%pc") if root == "selp" else (sources[:3], "7")
    side = form.mode & {"l", "r"}  # a part of the name, in front
    words = [root, *side, *sorted(form.mode - side), *filter(None, [extra]), type_]
    return ".".join(words), letters[form.result], sources, more


ROWS = [
    operation(root, form, type_, extra)
    for root, forms in isa.FORMS.items()
    for form in forms
    for type_ in form.types
    for extra in ("", *sorted(form.optional))
    if type_ in {"pred", *STORAGE} and not (type_ == "f64" and form.mode & {"rz", "rm", "rp"})
]


@pytest.mark.parametrize("part", range(4))
@pytest.mark.slow
def test_every_row_of_the_instruction_table(part: int) -> None:
    arithmetic(ROWS[part::4])


def conversions() -> list[tuple[Any, ...]]:
    found = []
    for to, source in itertools.permutations(("u16", "s32", "u32", "s64", "u64", "f32", "f64"), 2):
        reals = to[0] == "f", source[0] == "f"
        modes = {
            (True, True): ["rn", "rz", "rm", "rp"] if to == "f32" else [""],
            (True, False): ["rn", "rz", "rm", "rp"],
            (False, True): ["rni", "rzi", "rmi", "rpi"],
            (False, False): ["", "sat"],
        }[reals]
        for mode in modes:
            opcode = ".".join(["cvt", *filter(None, [mode]), to, source])
            found.append((opcode, to, [source], ""))
    return found


def test_conversions() -> None:
    arithmetic(conversions())


def test_comparisons() -> None:
    rows = [
        (f"setp.{comparison}.{type_}", "pred", [type_, type_], "")
        for comparison in isa.COMPARISONS
        for type_ in ("u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64")
        if not read_opcode(("setp", comparison, type_)).problem
    ]
    arithmetic(rows)


def halves() -> list[tuple[Any, ...]]:
    words = {"fma": "rn", "ex2": "approx", "tanh": "approx"}
    found = []
    for type_ in floats.HALVES:
        register = "b32" if type_.endswith("x2") else "b16"
        for root, (count, _) in floats.ARITHMETIC.items():
            ftz = "ftz" if (root, type_[:4]) == ("ex2", "bf16") else ""
            opcode = ".".join([root, *filter(None, [words.get(root, ""), ftz]), type_])
            found.append((opcode, register, [register] * count, ""))
    for to, rounding in itertools.product(("f16", "bf16"), ("rn", "rz", "rn.relu")):
        found.append((f"cvt.{rounding}.{to}.f32", "b16", ["f32"], ""))
        found.append((f"cvt.{rounding}.{to}x2.f32", "b32", ["f32", "f32"], ""))
        found.append((f"cvt.f32.{to}", "f32", ["b16"], ""))
    found += [(f"cvt.rzi.{to}.f16", to, ["b16"], "") for to in ("s32", "u16", "s64")]
    return [*found, ("cvt.rna.tf32.f32", "b32", ["f32"], "")]


def test_halves() -> None:
    arithmetic(halves())


def test_choices_between_constants() -> None:
    body = """ld.param.u64 %q0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0;
        mov.pred %p1, 1; selp.u32 %r1, 3, 4, %p1; st.global.u32 [%q1], %r1;
        setp.eq.u32 %p2, %r0, 5; selp.f32 %f1, 0f3F800000, 0f40000000, %p2;
        st.global.f32 [%q1+4], %f1; ret;"""
    both(ptx(body, ["u64"]), [np.zeros(64, np.uint32)])


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
def test_shuffles_of_constants(mode: str) -> None:
    body = f"""ld.param.u64 %q0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %q1, %r0, 8, %q0;
        shfl.sync.{mode}.b32 %r1|%p1, 7, 5, 31, -1; selp.u32 %r2, 1, 0, %p1;
        st.global.v2.u32 [%q1], {{%r1, %r2}}; ret;"""
    both(ptx(body, ["u64"]), [np.zeros(64, np.uint32)])


ATOMICS = [
    (name, type_)
    for name, rows in atomics.OPERATIONS.items()
    for types, _ in rows
    for type_ in types
    if type_ != "b16"
]


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("meeting", [1, 7, 64])
def test_atomics(space: str, meeting: int) -> None:
    """Lanes meet at so many cells. Each instruction has cells of its own: which of two that follow
    each other comes first for other warps is left open."""
    threads, nbytes = 96, 64 * 8
    memory = RNG.integers(0, 20, 2 * 64 * len(ATOMICS)).astype(np.uint64)
    where = RNG.integers(0, meeting, threads).astype(np.uint32)
    old = np.zeros(threads * len(ATOMICS), np.uint64)
    body = [
        f".shared .align 8 .b8 s[{memory.nbytes}]; mov.u32 %r0, %tid.x;",
        "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.param.u64 %q2, [p2];",
        "mad.wide.u32 %q3, %r0, 4, %q1; ld.global.u32 %r1, [%q3]; mad.wide.u32 %q5, %r0, 8, %q2;",
        "mov.u64 %q0, s;" if space == "shared" else "",
        "mad.wide.u32 %q4, %r1, 8, %q0; add.u32 %r2, %r0, 3; cvt.u64.u32 %q6, %r2;",
        "cvt.rn.f32.u32 %f1, %r2; cvt.rn.f64.u32 %g1, %r2; setp.lt.u32 %p1, %r0, 50;",
    ]
    for k, (name, type_) in enumerate(ATOMICS):
        wide, real = type_.endswith("64"), type_[0] == "f"
        value = ("%g1" if wide else "%f1") if real else "%q6" if wide else "%r2"
        result = ("%g2" if wide else "%f2") if real else "%q7" if wide else "%r3"
        cells, last = 2 * k * nbytes, f"{'3, ' if name == 'cas' else ''}{value}"
        dot, guard = f".{space}" if space else "", "@%p1 " if k % 3 == 0 else ""
        body.append(f"{guard}atom{dot}.{name}.{type_} {result}, [%q4+{cells}], {last};")
        body.append(f"st.global.b{type_[1:]} [%q5+{k * threads * 8}], {result};")
        if name not in ("exch", "cas"):
            body.append(f"red{dot}.{name}.{type_} [%q4+{cells + nbytes}], {last};")
    both(ptx("\n".join([*body, "ret;"]), ["u64"] * 3), [memory, where, old], block=(96, 1, 1))


@settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(st.sampled_from(ROWS), min_size=5, max_size=40), st.randoms())
def test_random_programs(operations: list[tuple[Any, ...]], random: Random) -> None:
    """Instructions that feed each other, some of them guarded."""
    lanes = 96
    inputs = [drawn(t, 3 * lanes) for t in TYPES]
    moves: dict[str, list[str]] = {"ld": [], "st": []}
    for n, type_ in enumerate(TYPES):
        width = int(type_[1:]) // 8
        where = f"ld.param.u64 %base, [p{n}]; mad.wide.u32 %at, %tid, {width}, %base;"
        for k in range(3):
            at, name = f"[%at+{k * lanes * width}]", f"%{type_}_{k}"
            moves["ld"].append(f"{where} ld.global.{type_} {name}, {at};")
            moves["st"].append(f"{where} st.global.{type_} {at}, {name};")
    body = [f".reg .{t} %{t}_<3>;" for t in TYPES]
    body += [".reg .u32 %tid; .reg .b64 %base, %at; .reg .pred %pa, %pb, %pc;"]
    body += ["mov.u32 %tid, %tid.x;", *moves["ld"], "and.b32 %r1, %b32_0, 1;"]
    body += ["setp.eq.u32 %pa, %r1, 1; setp.lt.s32 %pb, %b32_1, %b32_2; not.pred %pc, %pa;"]

    def pick(type_: str) -> str:
        if type_ == "pred":
            return random.choice(["%pa", "%pb", "%pc"])
        return f"%{register(type_)}_{random.randrange(3)}"

    for opcode, result, types, more in operations:
        guard = random.choice(["", "", "@%pa ", "@!%pb "])
        operands = [pick(result), *map(pick, types), *filter(None, [more])]
        body.append(f"{guard}{opcode} {', '.join(operands)};")
    text = ptx("\n".join([*body, *moves["st"], "ret;"]), ["u64"] * len(inputs))
    both(text, inputs, block=(lanes, 1, 1))


# Control flow


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
    """In step all warps read the same; those of one warp do even where its lanes have parted."""
    type_ = CLOCKS[clock]
    parted = "setp.lt.u32 %p1, %r0, 9; @%p1 bra NEXT; add.u32 %r2, %r2, 1; NEXT:"
    body = f""".reg .{type_} %t<3>; mov.{type_} %t0, {clock}; ld.param.u64 %q0, [p0];
        mov.u32 %r0, %tid.x; mad.wide.u32 %q0, %r0, 24, %q0; mov.u32 %r1, 0;
        mov.{type_} %t1, {clock};
        LOOP: add.u32 %r1, %r1, 1; {parted if threads == 32 else ""}
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
    """Block 0 waits for block 1, which has read the time more often."""
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


# Memory

PATTERNS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row": lambda lane: lane,
    "reversed": lambda lane: 127 - lane,
    "stride 2": lambda lane: 2 * lane,
    "stride 33": lambda lane: 33 * lane % 128,
    "one": lambda lane: lane * 0 + 5,
    "halves": lambda lane: lane // 16,
    "quads": lambda lane: lane // 4,
    "swizzled": lambda lane: lane ^ (lane >> 3 & 7),
    "random": lambda lane: RNG.integers(0, 128, lane.size),
}
MASKS = ["all", "none", "half", "random", "one"]
WIDTHS = {
    1: "u8",
    2: "u16",
    4: "u32",
    8: "u64",
    16: "v4.u32",
    12: "v2.u64",
    6: "v2.u32",
    3: "v4.u8",
}


UNIFORM = [12, -8, 1 << 63, (1 << 64) - 4096]


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.randoms(), st.sampled_from(["uniform", "parted"]), st.sampled_from([32, 40]))
@pytest.mark.slow
def test_addresses(random: Random, way: str, threads: int) -> None:
    """Signed and unsigned 64-bit arithmetic on the way to an address: no sum may be rounded."""
    x, lane = np.arange(1000, 2000).astype(np.uint32), np.arange(threads)
    out = np.zeros((6, threads), np.uint32)
    addresses, wanted = Addresses(random, threads, x.nbytes, UNIFORM), []
    body = [".reg .u32 %tid; .reg .b64 %base, %to, %u<4>; mov.u32 %tid, %tid.x;"]
    body.append("ld.param.u64 %base, [p0]; ld.param.u64 %to, [p1];")
    body.append("mad.wide.u32 %to, %tid, 4, %to; setp.lt.u32 %p1, %tid, 20;")
    body += [f"ld.param.u64 %u{k}, [p{2 + k}];" for k in range(len(UNIFORM))]
    if way == "parted":
        body.append("@%p1 bra NEXT; add.u64 %to, %to, 0; NEXT:")
    for k in range(len(out)):
        where, first, slope = addresses.address()
        wanted.append(x[(first + slope * lane) // 4])
        body.append(f"{addresses.text()} ld.global.u32 %r1, [{where}];")
        body.append(f"st.global.u32 [%to+{4 * threads * k}], %r1;")
    text = ptx("\n".join([*body, "ret;"]), ["u64"] * (2 + len(UNIFORM)))
    both(text, [x, out, *UNIFORM], block=(threads, 1, 1))
    np.testing.assert_array_equal(out, wanted)


@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.sampled_from(["global", "shared", "local", ""]),
    st.sampled_from(sorted(WIDTHS)),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(MASKS),
    st.sampled_from([32, 64, 70]),
)
@pytest.mark.slow
def test_memory_patterns(
    space: str, width: int, source: str, target: str, mask: str, threads: int
) -> None:
    """Lanes read one pattern and write another, three times at places further on."""
    type_ = WIDTHS[width]
    nbytes = {"v4.u32": 16, "v2.u64": 16, "v2.u32": 8, "v4.u8": 4}.get(type_, width)
    count = int(type_[1]) if type_[0] == "v" else 1
    lane = np.arange(threads) % 32
    places = [PATTERNS[name](lane) % 128 for name in (source, target)]
    on = {"all": lane >= 0, "none": lane < 0, "half": lane < 16, "one": lane == 9}
    on["random"] = RNG.random(threads) < 0.5
    index = np.stack([*places, on[mask]]).astype(np.uint32)
    data = RNG.integers(0, 256, (128 + 3) * nbytes, np.uint8)
    if target == "random" or threads > 32:  # let only one lane write to one place
        index[1] = np.arange(threads) % 128
    values = [f"%v{k}" for k in range(count)]
    names = values[0] if count == 1 else "{" + ", ".join(values) + "}"
    kind = "b64" if "64" in type_ else "b32" if "32" in type_ else "b16"
    dot, base = (f".{space}", "%q4") if space else ("", "%q4")
    start = {"global": "mov.u64 %q4, %q1;", "": "cvta.shared.u64 %q4, s;"}
    start |= {"shared": "mov.u64 %q4, s;", "local": "mov.u64 %q4, m;"}
    fill = f"""
        mov.u32 %r9, 0; FILL: cvt.u64.u32 %q8, %r9; add.u64 %q9, %q1, %q8;
        ld.global.u8 %h1, [%q9]; add.u64 %q10, {base}, %q8; st{dot}.u8 [%q10], %h1;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, {data.size}; @%p3 bra FILL; bar.sync 0;"""
    body = f"""
        .shared .align 16 .b8 s[{data.size}]; .local .align 16 .b8 m[{data.size}];
        .reg .{kind} %v<4>; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.param.u64 %q2, [p2];
        mov.u32 %r0, %tid.x; mad.wide.u32 %q3, %r0, 4, %q0; ld.global.u32 %r1, [%q3];
        ld.global.u32 %r2, [%q3+{4 * threads}]; ld.global.u32 %r3, [%q3+{8 * threads}];
        setp.ne.u32 %p1, %r3, 0; {start[space]} {fill if space != "global" else ""}
        mad.wide.u32 %q5, %r1, {nbytes}, {base}; mad.wide.u32 %q6, %r2, {nbytes}, {base};
        {" ".join(f"mov.{kind} {v}, 0;" for v in values)}
        mov.u32 %r8, 0; mul.wide.u32 %q11, %r0, {3 * nbytes}; add.u64 %q11, %q11, %q2;
        LOOP: @%p1 ld{dot}.{type_} {names}, [%q5]; st.global.{type_} [%q11], {names};
        bar.sync 0; @%p1 st{dot}.{type_} [%q6+{nbytes}], {names}; bar.sync 0;
        add.u64 %q5, %q5, {nbytes}; add.u64 %q6, %q6, {nbytes}; add.u64 %q11, %q11, {nbytes};
        add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 2; @%p2 bra LOOP; ret;"""
    out = np.zeros(3 * nbytes * threads, np.uint8)
    both(ptx(body, ["u64"] * 3), [index, data, out], block=(threads, 1, 1))


@settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.sampled_from(["ca 4", "ca 8", "ca 16", "cg 16"]),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from(MASKS),
    st.sampled_from(["all", "some", "partial"]),
    st.sampled_from([32, 64, 70]),
)
@pytest.mark.slow
def test_copies(form: str, source: str, target: str, mask: str, sizes: str, threads: int) -> None:
    """Three times, further on each time; the second wait leaves the last group under way."""
    level, nbytes = form.split()[0], int(form.split()[1])
    lane = np.arange(threads) % 32
    places = [PATTERNS[name](lane) % 128 for name in (source, target)]
    if threads > 32 or target == "random":  # let only one lane write to one place
        places[1] = np.arange(threads) % 128
    on = {"all": lane >= 0, "none": lane < 0, "half": lane < 16, "one": lane == 9}
    on["random"] = RNG.random(threads) < 0.5
    size = {
        "all": lane * 0 + nbytes,
        "some": lane % 3 // 2 * nbytes,
        "partial": lane % (nbytes + 1),
    }
    index = np.stack([*places, on[mask], size[sizes]]).astype(np.uint32)
    data = RNG.integers(0, 256, (128 + 100) * nbytes, np.uint8)
    step = 33 * nbytes
    body = f"""
        .shared .align 128 .b8 s[{131 * nbytes}]; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        ld.param.u64 %q2, [p2]; mov.u32 %r0, %tid.x; mad.wide.u32 %q3, %r0, 4, %q0;
        ld.global.u32 %r1, [%q3]; ld.global.u32 %r2, [%q3+{4 * threads}];
        ld.global.u32 %r3, [%q3+{8 * threads}]; ld.global.u32 %r4, [%q3+{12 * threads}];
        setp.ne.u32 %p1, %r3, 0; mad.wide.u32 %q5, %r1, {nbytes}, %q1; mov.u32 %r5, s;
        mad.lo.u32 %r6, %r2, {nbytes}, %r5; mov.u32 %r8, 0; mov.u32 %r9, %r0;
        mov.u32 %r7, %r0; ZERO: add.u32 %r10, %r5, %r7; st.shared.u8 [%r10], 7;
        add.u32 %r7, %r7, {threads}; setp.lt.u32 %p2, %r7, {131 * nbytes}; @%p2 bra ZERO;
        bar.sync 0;
        LOOP: @%p1 cp.async.{level}.shared.global [%r6], [%q5], {nbytes}, %r4;
        cp.async.commit_group; cp.async.wait_group 1; bar.sync 0; mov.u32 %r7, %r0;
        SHOW: add.u32 %r10, %r5, %r7; ld.shared.u8 %h1, [%r10]; cvt.u64.u32 %q6, %r7;
        add.u64 %q6, %q6, %q2; st.global.u8 [%q6], %h1; add.u32 %r7, %r7, {threads};
        setp.lt.u32 %p2, %r7, {131 * nbytes}; @%p2 bra SHOW; bar.sync 0;
        add.u64 %q2, %q2, {131 * nbytes}; add.u64 %q5, %q5, {step}; add.u32 %r6, %r6, {nbytes};
        add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 3; @%p2 bra LOOP; ret;"""
    out = np.zeros(3 * 131 * nbytes, np.uint8)
    both(ptx(body, ["u64"] * 3), [index, data, out], block=(threads, 1, 1))


@pytest.mark.parametrize("count", [7, 8, 9, 40])
def test_many_copies_under_way(count: int) -> None:
    """Those of parted lanes, too; half of them arrive, so that the ring goes round."""
    copies = "".join(
        f"cp.async.ca.shared.global [%r1+{128 * k}], [%q1+{128 * k}], 4, {4 if k < 7 else 2};"
        "cp.async.commit_group;" + ("cp.async.wait_group 5;" if k == 6 else "")
        for k in range(count)
    )
    body = f"""ld.param.u64 %q0, [p0]; .shared .align 16 .b8 s[{128 * count}];
        mov.u32 %r0, %tid.x; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 4, %r1;
        mad.wide.u32 %q1, %r0, 4, %q0; setp.lt.u32 %p1, %r0, 20; @%p1 bra NEXT; {copies}
        NEXT: @%p1 cp.async.ca.shared.global [%r1], [%q1+4], 4; cp.async.wait_all;
        ld.shared.u32 %r2, [%r1]; mov.u32 %r4, {count}; ALL: sub.u32 %r4, %r4, 1;
        mad.lo.u32 %r5, %r4, 128, %r1; ld.shared.u32 %r3, [%r5]; mad.lo.u32 %r2, %r2, 3, %r3;
        setp.ne.u32 %p2, %r4, 0; @%p2 bra ALL; st.global.u32 [%q1], %r2; ret;"""
    both(ptx(body, ["u64"]), [RNG.integers(0, 1 << 30, 32 * count).astype(np.uint32)])


def test_copies_past_l1_whose_pattern_changes() -> None:
    """Lanes read 0, 16, 32, … bytes apart, and write to places that are swapped in turn."""
    body = """ld.param.u64 %q0, [p0]; .shared .align 128 .b8 s[1024]; mov.u32 %r0, %tid.x;
        mov.u32 %r1, 0; mov.u32 %r5, s; LOOP: mul.lo.u32 %r2, %r0, %r1; shr.u32 %r3, %r1, 1;
        mad.wide.u32 %q1, %r2, 16, %q0; xor.b32 %r4, %r0, %r3; and.b32 %r4, %r4, 31;
        mad.lo.u32 %r4, %r4, 16, %r5; setp.lt.u32 %p1, %r0, 33;
        cp.async.cg.shared.global [%r4], [%q1], 16;
        @%p1 cp.async.cg.shared.global [%r4+512], [%q1], 16;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 9; @%p2 bra LOOP; ret;"""
    x = np.zeros(16 * 9 * 64, np.uint8)
    both(ptx(body, ["u64"]), [x], block=(64, 1, 1))


@pytest.mark.parametrize("meeting", [1, 5, 64])
@pytest.mark.parametrize("count", [2, 4])
def test_atomics_on_vectors(count: int, meeting: int) -> None:
    """Lanes meet at so many vectors; each gets what it found there."""
    threads = 96
    cells = RNG.integers(0, 20, 64 * count).astype(np.float32)
    where = RNG.integers(0, meeting, threads).astype(np.uint32)
    old = np.zeros((threads, count), np.float32)
    found = ", ".join(f"%f{k}" for k in range(count))
    given = ", ".join(f"%v{k}" for k in range(count))
    values = "".join(
        f"add.u32 %r2, %r1, {k}; cvt.rn.f32.u32 %v{k}, %r2; mov.f32 %f{k}, 0f00000000;"
        for k in range(count)
    )
    body = f""".reg .f32 %v<4>; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        ld.param.u64 %q2, [p2]; mov.u32 %r1, %tid.x; mad.wide.u32 %q3, %r1, 4, %q1;
        ld.global.u32 %r3, [%q3]; mad.wide.u32 %q4, %r3, {4 * count}, %q0; {values}
        mad.wide.u32 %q5, %r1, {4 * count}, %q2; setp.lt.u32 %p1, %r1, 50;
        @%p1 atom.global.add.v{count}.f32 {{{found}}}, [%q4], {{{given}}};
        st.global.v{count}.f32 [%q5], {{{found}}}; bar.sync 0;
        red.global.add.v{count}.f32 [%q4], {{{given}}}; ret;"""
    both(ptx(body, ["u64"] * 3), [cells, where, old], block=(threads, 1, 1))


@pytest.mark.parametrize("vector", ["", ".v2"])
@pytest.mark.parametrize("type_", atomics.HALVES)
def test_atomics_on_halves(type_: str, vector: str) -> None:
    """Of any bits; each lane gets what it found."""
    threads, count = 64, 2 if vector else 1
    nbytes = 4 if type_.endswith("x2") else 2
    word = f"u{nbytes}"
    cells = RNG.integers(0, 1 << 8 * nbytes, 8 * count, word)
    values = RNG.integers(0, 1 << 8 * nbytes, (threads, count), word)
    old = np.zeros((threads, count), word)
    names = [", ".join(f"%{n}{k}" for k in range(count)) for n in "xy"]
    found, given = (f"{{{x}}}" if vector else x for x in names)
    kind, size = f"b{8 * nbytes}", nbytes * count
    body = f""".reg .{kind} %x<2>, %y<2>; ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];
        ld.param.u64 %q2, [p2]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 7;
        mad.wide.u32 %q3, %r2, {size}, %q0; mad.wide.u32 %q4, %r1, {size}, %q1;
        mad.wide.u32 %q5, %r1, {size}, %q2; ld.global{vector}.{kind} {given}, [%q4];
        atom.global.add.noftz{vector}.{type_} {found}, [%q3], {given};
        st.global{vector}.{kind} [%q5], {found}; ret;"""
    both(ptx(body, ["u64"] * 3), [cells, values, old], block=(threads, 1, 1))
