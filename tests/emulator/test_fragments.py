"""wmma: every shape, type and layout against NumPy; strides; uniform fragments."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from machine import TIERS, needs_native
from snippets import HEADER, ptx

import gemmlab
from gemmlab.emulator import run
from gemmlab.emulator.translation.emit.fragments import SHAPES, SUMS, make
from gemmlab.errors import OutOfBoundsError, UnsupportedInstructionError
from gemmlab.sass.machine import disassemble

RNG = np.random.default_rng(0)
REGISTER = {"f32": "f32", "s32": "b32", "f64": "f64"}
FORMS = [
    (shape, type_, sum_)
    for shape, types in SHAPES.items()
    for type_ in sorted(types)
    for sum_ in SUMS.get(type_, ("f32",))
]


def numbers(type_, rows, columns):
    """Return small integers in the kernel's type and as float64."""
    low = 0 if type_ == "u8" else -4
    whole = RNG.integers(low, 5, (rows, columns)).astype(np.float64)
    match type_:
        case "bf16":
            return (whole.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), whole
        case "tf32":
            return whole.astype(np.float32), whole
    kinds = {"f16": "f2", "f32": "f4", "f64": "f8", "s8": "i1", "u8": "u1", "s32": "i4"}
    return whole.astype(kinds[type_]), whole


def kernel(shape, type_, sum_, layouts, strides=("", "", "", ""), change="", extra=""):
    """D = A·B + C by one warp, with pointers p0 to p3. `change`: code for each register of C."""
    m, n, k = shape
    name, lists, declared = f"m{m}n{n}k{k}", {}, ""
    for which, rows, columns, t in (
        ("a", m, k, type_), ("b", k, n, type_), ("c", m, n, sum_), ("d", m, n, sum_)
    ):  # fmt: skip
        count, register = make(rows, columns, t, which).registers, REGISTER.get(t, "b32")
        declared += f".reg .{register} %{which}<{count}>;"
        lists[which] = ", ".join(f"%{which}{j}" for j in range(count))
    a, b, c, d = layouts
    types = f"{sum_}.{sum_}" if type_ == "f16" else f"{sum_}.{type_}.{type_}.{sum_}"
    tail = ".rn" if type_ == "f64" else extra
    changed = "".join(change.format(x) for x in lists["c"].split(", "))
    return f"""{HEADER}
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)
{{ .reg .b64 %q<4>; {declared}
ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1]; ld.param.u64 %q2, [p2]; ld.param.u64 %q3, [p3];
wmma.load.a.sync.aligned.{a}.{name}.global.{type_} {{{lists["a"]}}}, [%q0]{strides[0]};
wmma.load.b.sync.aligned.{b}.{name}.{type_} {{{lists["b"]}}}, [%q1]{strides[1]};
wmma.load.c.sync.aligned.{c}.{name}.global.{sum_} {{{lists["c"]}}}, [%q2]{strides[2]};
{changed}
wmma.mma.sync.aligned.{a}.{b}.{name}.{types}{tail}
{{{lists["d"]}}}, {{{lists["a"]}}}, {{{lists["b"]}}}, {{{lists["c"]}}};
wmma.store.d.sync.aligned.{d}.{name}.global.{sum_} [%q3], {{{lists["d"]}}}{strides[3]};
ret; }}"""


def run_warp(tier, text, *arrays):
    return run(text, "k", (1, 1, 1), (32, 1, 1), list(arrays), tier=tier)


@pytest.fixture(params=TIERS)
def launch(request):
    """Run one warp."""
    return partial(run_warp, request.param)


@needs_native
@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("stride", [", 24", ", %r1"])
@pytest.mark.parametrize("space", ["", ".shared"])
def test_tiers_count_alike(stride, space, column_major):
    """Load a fragment of each type from global memory and store it to shared or global memory."""
    layout = "col" if column_major else "row"
    for shape, type_ in (("m16n16k16", "f32"), ("m16n16k16", "f16"), ("m8n8k4", "f64")):
        count = {"f32": 8, "f16": 4, "f64": 2}[type_]
        names = ", ".join(f"%d{k}" for k in range(count))
        start, load = ("mov.u64 %q1, s;", "ld.shared") if space else ("", "ld.global")
        form = f"{{{names}}}, [%q0]{stride}"
        body = f""".shared .align 16 .b8 s[4096]; .reg .{REGISTER.get(type_, "b32")} %d<8>;
            ld.param.u64 %q0, [p0]; mov.u32 %r1, 24; add.u64 %q1, %q0, 4096; {start}
            mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 64;
            @%p1 wmma.load.c.sync.aligned.{layout}.{shape}.global.{type_} {form};
            @%p1 wmma.store.d.sync.aligned.row.{shape}{space}.{type_} [%q1], {{{names}}}{stride};
            mul.wide.u32 %q3, %r2, 8; add.u64 %q4, %q0, %q3; add.u64 %q5, %q1, %q3;
            {load}.u64 %q6, [%q5]; st.global.u64 [%q4+2048], %q6; ret;"""
        found = []
        for tier in ("numpy", "native"):
            x = np.random.default_rng(3).integers(0, 256, 8192, np.uint8)
            result = run(ptx(body, ["u64"]), "k", (1, 1, 1), (32, 1, 1), [x], tier=tier)
            found.append((x.tobytes(), result.counters))
        assert found[0] == found[1]


COLUMNS = ("col", "row", "col", "col")
ROWS = ("row", "col", "row", "row")


@pytest.mark.parametrize(
    ("shape", "type_", "sum_", "layouts"),
    [
        ((16, 16, 16), "f16", "f32", ROWS),
        ((16, 16, 16), "bf16", "f32", COLUMNS),
        ((32, 8, 16), "s8", "s32", COLUMNS),
        ((8, 32, 16), "f16", "f32", ROWS),
        ((8, 8, 4), "f64", "f64", COLUMNS),
    ],
)
def test_a_lane_accesses_memory_as_often_as_in_machine_code(shape, type_, sum_, layouts):
    text = kernel(shape, type_, sum_, layouts)
    arrays = [np.zeros(8192, np.uint8) for _ in range(4)]
    done = run(text, "k", (1, 1, 1), (32, 1, 1), arrays, tier="numpy")
    code = done.program.function.instructions
    emulated = {code[i].line: site.requests for (i, _), site in done.tally.sites.items()}
    artifact = gemmlab.load(text)
    machine = disassemble(artifact.cubin, artifact.entry).instructions
    assert emulated == Counter(i.line for i in machine if i.root in ("LDG", "STG", "LD", "ST"))


def laid_out(array, layout):
    return np.ascontiguousarray(array if layout == "row" else array.T)


LAYOUTS = [("row", "col", "row", "row"), ("col", "row", "col", "row")]
ODD = {(32, 8, 16), (8, 32, 16)}
PLACED = {("f16", "f32"), ("s8", "s32")}  # bf16 has the places of f16, and u8 those of s8


def is_run(tier, index, layouts):
    """Whether a form, by its index, is run on a tier; see `test_products`."""
    shape, type_, sum_ = FORMS[index]
    own = LAYOUTS.index(layouts) == index % 2
    return tier != "native" or (own and (shape not in ODD or (type_, sum_) in PLACED))


@pytest.mark.parametrize(
    ("tier", "shape", "type_", "sum_", "layouts"),
    [
        pytest.param(tier, *form, layouts, marks=marks)
        for tier, marks in (("numpy", ()), ("native", needs_native))
        for index, form in enumerate(FORMS)
        for layouts in LAYOUTS
        if is_run(tier, index, layouts)
    ],
)
@pytest.mark.slow
def test_products(tier, shape, type_, sum_, layouts):
    """Both tiers take the places of elements from one table. The native tier takes longer to
    compile than to run: there, each form has one of the layouts, and a wide or tall shape has only
    those types whose elements no other type places."""
    m, n, k = shape
    (a, exact_a), (b, exact_b) = numbers(type_, m, k), numbers(type_, k, n)
    c, exact_c = numbers(sum_, m, n)
    d = np.zeros((m, n), c.dtype)
    stored = [laid_out(x, layout) for x, layout in zip((a, b, c), layouts, strict=False)]
    run_warp(tier, kernel(shape, type_, sum_, layouts), *stored, d)
    assert np.array_equal(d.astype(np.float64), exact_a @ exact_b + exact_c)


def test_strides_and_elements_that_are_all_treated_alike(launch):
    a, exact_a = numbers("f16", 16, 24)
    b, exact_b = numbers("f16", 16, 40)  # B with 16 columns of 40 numbers
    c, exact_c = numbers("f32", 16, 20)
    d = np.full((16, 32), np.nan, np.float32)
    layouts, strides = ("row", "col", "row", "row"), (", 24", ", 40", ", 20", ", 32")
    double = "add.f32 {0}, {0}, {0};"
    launch(kernel((16, 16, 16), "f16", "f32", layouts, strides, double), a, b, c, d)
    exact = exact_a[:, :16] @ exact_b[:, :16].T + 2 * exact_c[:, :16]
    assert np.array_equal(d[:, :16], exact) and np.isnan(d[:, 16:]).all()


def test_sums_of_integers_saturate_where_asked(launch):
    a, b = np.full((16, 16), 127, np.int8), np.full((16, 16), 127, np.int8)
    c, d = np.full((16, 16), 2**31 - 10, np.int32), np.zeros((16, 16), np.int32)
    layouts = ("row", "col", "row", "row")
    launch(kernel((16, 16, 16), "s8", "s32", layouts, extra=".satfinite"), a, b, c, d)
    assert (d == 2**31 - 1).all()
    launch(kernel((16, 16, 16), "s8", "s32", layouts), a, b, c, d)
    assert (d == 2**31 - 10 + 16 * 127**2 - 2**32).all()


def test_matrices_end_where_their_arrays_do(launch):
    layouts = ("row", "col", "row", "row")
    a, b = np.zeros((16, 16), np.float16), np.zeros((16, 15), np.float16)
    c = np.zeros((16, 16), np.float32)
    with pytest.raises(OutOfBoundsError, match="argument 1"):
        launch(kernel((16, 16, 16), "f16", "f32", layouts), a, b, c, c.copy())


@pytest.mark.parametrize(
    ("old", "new"),
    [("m16n16k16", "m16n16k8"), ("mma.sync", "mma"), ("row.col", "row.diag"), ("{%d0, ", "{")],
)
def test_forms_that_ptx_does_not_have(launch, old, new):
    text = kernel((16, 16, 16), "f16", "f32", ("row", "col", "row", "row")).replace(old, new)
    arrays = [np.zeros((16, 16), dtype) for dtype in ("f2", "f2", "f4", "f4")]
    with pytest.raises(UnsupportedInstructionError, match="wmma"):
        launch(text, *arrays)
