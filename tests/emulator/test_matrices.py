"""ldmatrix, stmatrix, movmatrix and mma.sync, with the PTX manual's fragment layouts."""

from __future__ import annotations

import numpy as np
import pytest
from machine import TIERS

from gemmlab.emulator.arithmetic import tensor_core
from gemmlab.errors import MisalignedAddressError, OutOfBoundsError, UnsupportedInstructionError

RNG = np.random.default_rng(4)
WARPS = 3
LANES = 32 * WARPS
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64, "s8": 8, "u8": 8}
BITS |= {"s4": 4, "u4": 4}


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


def place_in_a(rows: int, type_: str, lane: int, index: int) -> tuple[int, int]:
    """Return the row and column of element a_index of a lane."""
    group, thread = lane >> 2, lane % 4
    each = max(32 // BITS[type_], 1)  # elements per register
    register, within = divmod(index, each)
    row = group + (8 * (register % 2) if rows == 16 else 0)
    block = register // 2 if rows == 16 else register
    return row, thread * each + within + 4 * each * block


def place_in_b(type_: str, lane: int, index: int) -> tuple[int, int]:
    column, row = place_in_a(8, type_, lane, index)
    return row, column


def place_in_c(lane: int, index: int) -> tuple[int, int]:
    return (lane >> 2) + 8 * (index // 2), lane % 4 * 2 + index % 2


def encode(values: np.ndarray, type_: str) -> np.ndarray:
    """Pack a lane's elements, along the last axis, into its registers."""
    match type_:
        case "f16":
            return values.astype(np.float16).view("u4")
        case "bf16":
            return (values.astype(np.float32).view("u4") >> 16).astype("u2").view("u4")
        case "tf32" | "f32":
            return values.astype(np.float32).view("u4")
        case "f64":
            return values.astype(np.float64)
        case "s4" | "u4":
            nibbles = values.astype(np.int64) & 15
            return (nibbles[..., ::2] | nibbles[..., 1::2] << 4).astype("u1").view("u4")
    return values.astype({"s8": "i1", "u8": "u1", "s32": "i4"}[type_]).view("u4")


def decode(registers: np.ndarray, type_: str) -> np.ndarray:
    kind = {"f16": "f2", "f32": "f4", "s32": "i4", "f64": "f8"}[type_]
    return np.ascontiguousarray(registers).view(kind).astype(float)


def fragments(matrices: np.ndarray, place) -> np.ndarray:
    """Convert (warps, rows, columns) to (lanes, elements per lane)."""
    count = matrices[0].size // 32
    at = np.array([[place(lane, i) for i in range(count)] for lane in range(32)])
    return matrices[:, at[..., 0], at[..., 1]].reshape(LANES, count)


def multiply(launch, opcode: str, rows: int, types: list[str], a, b, c) -> np.ndarray:
    """Return D (warps, rows, 8) of mma.sync on matrices with a leading axis of warps."""
    d_type, a_type, b_type, c_type = types
    held = [
        encode(fragments(a, lambda lane, i: place_in_a(rows, a_type, lane, i)), a_type),
        encode(fragments(b, lambda lane, i: place_in_b(b_type, lane, i)), b_type),
        encode(fragments(c, place_in_c), c_type),
    ]
    d = np.zeros_like(encode(fragments(c, place_in_c), d_type))
    code, lists = "", []
    for number, x in enumerate([d, *held]):
        type_ = "f64" if x.dtype == np.float64 else "b32"
        names = [f"%m{number}_{k}" for k in range(x.shape[1])]
        lists.append("{" + ", ".join(names) + "}")
        code += f".reg .{type_} {', '.join(names)};"
        code += f"mad.wide.u32 %q{10 + number}, %r0, {x.shape[1] * x.itemsize}, %q{number};"
        for k, name in enumerate(names if number else []):
            code += f"ld.global.{type_} {name}, [%q{10 + number}+{k * x.itemsize}];"
    code += f"{opcode} {', '.join(lists)};"
    type_ = "f64" if d.dtype == np.float64 else "b32"
    for k in range(d.shape[1]):
        code += f"st.global.{type_} [%q10+{k * d.itemsize}], %m0_{k};"
    launch(code, [d, *held], block=LANES)
    result = np.zeros((WARPS, rows, 8))
    for lane in range(32):
        for i, column in enumerate(decode(d, d_type).reshape(WARPS, 32, -1)[:, lane].T):
            result[:, *place_in_c(lane, i)] = column
    return result


FLOATS = [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"), ("f64", "f64")]
DEPTHS = {"f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "f64": (4, 8, 16)}
PRODUCTS = [(16, k, [d, a, a, d]) for a, d in FLOATS for k in DEPTHS[a]]
PRODUCTS += [(8, 4, ["f64", "f64", "f64", "f64"])]
for a, b in (("s8", "s8"), ("u8", "s8"), ("s8", "u8")):
    PRODUCTS += [(m, k, ["s32", a, b, "s32"]) for m, k in ((8, 16), (16, 16), (16, 32))]
PRODUCTS += [(m, k, ["s32", "s4", "u4", "s32"]) for m, k in ((8, 32), (16, 32), (16, 64))]


@pytest.mark.parametrize(("rows", "depth", "types"), PRODUCTS)
@pytest.mark.slow
def test_products_of_small_integers_are_exact(launch, rows, depth, types):
    low = [0 if t[0] == "u" else -7 for t in types]
    a = RNG.integers(low[1], 8, (WARPS, rows, depth)).astype(float)
    b = RNG.integers(low[2], 8, (WARPS, depth, 8)).astype(float)
    c = RNG.integers(-99, 99, (WARPS, rows, 8)).astype(float)
    opcode = f"mma.sync.aligned.m{rows}n8k{depth}.row.col.{'.'.join(types)}"
    np.testing.assert_array_equal(multiply(launch, opcode, rows, types, a, b, c), a @ b + c)


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_sums_wrap_or_saturate(launch, saturate):
    a, b = np.full((WARPS, 16, 32), -128.0), np.full((WARPS, 32, 8), 127.0)
    c = np.full((WARPS, 16, 8), -(2.0**31) + 5)
    words = ".satfinite" if saturate else ""
    opcode = f"mma.sync.aligned.m16n8k32.row.col{words}.s32.s8.s8.s32"
    got = multiply(launch, opcode, 16, ["s32", "s8", "s8", "s32"], a, b, c)
    total = int(c[0, 0, 0]) - 32 * 128 * 127
    assert (got == (-(2**31) if saturate else total + 2**32)).all()


@pytest.mark.parametrize(("kind", "depth"), [("f16", 16), ("f16", 8), ("bf16", 16), ("tf32", 8)])
def test_one_instruction_is_one_step(launch, kind, depth):
    """All products are aligned and truncated together, 25 bits below the largest exponent."""
    form = {"f16": tensor_core.F16, "bf16": tensor_core.BF16, "tf32": tensor_core.TF32}[kind]
    digits = {"f16": 11, "bf16": 8, "tf32": 11}[kind]
    a, b = (
        np.ldexp(RNG.integers(-(1 << digits), 1 << digits, shape), RNG.integers(-9, 0, shape))
        for shape in ((WARPS, 16, depth), (WARPS, depth, 8))
    )
    a, b = a / 2.0**digits, b / 2.0**digits
    c = RNG.standard_normal((WARPS, 16, 8)).astype(np.float32).astype(float)
    opcode = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32"
    got = multiply(launch, opcode, 16, ["f32", kind, kind, "f32"], a, b, c)
    left, right = a.transpose(2, 0, 1)[..., None], b.transpose(1, 0, 2)[:, :, None]
    np.testing.assert_array_equal(got, tensor_core.accumulate(left, right, c, form))
    assert (got != tensor_core.dot(left, right, c, form, step=depth // 2)).any()


def test_tf32_operands_lose_their_low_bits_and_f64_rounds_per_product(launch):
    a = np.full((WARPS, 16, 4), 1 + 2.0**-11)
    b, c = np.ones((WARPS, 4, 8)), np.zeros((WARPS, 16, 8))
    opcode = "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"
    assert (multiply(launch, opcode, 16, ["f32", "tf32", "tf32", "f32"], a, b, c) == 4).all()
    a = np.broadcast_to([2.0**53, 1, 1, -(2.0**53)], (WARPS, 8, 4))  # both ones are lost
    opcode = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    assert (multiply(launch, opcode, 8, ["f64"] * 4, a, b, c[:, :8]) == 0).all()


# Matrices of 16-bit elements in shared memory

SETUP = (
    ".reg .b32 %d<4>; .shared .align 16 .b8 tile[8192]; mov.u32 %r1, tile;"
    "mad.wide.u32 %q9, %r0, 4, %q1; ld.global.u32 %r2, [%q9]; add.u32 %r2, %r1, %r2;"
)
FILL = (
    "mov.u32 %r3, %r0; F: mad.lo.u32 %r4, %r3, 4, %r1; mul.wide.u32 %q8, %r3, 4;"
    "add.u64 %q8, %q0, %q8; ld.global.u32 %r5, [%q8]; st.shared.u32 [%r4], %r5;"
    "add.u32 %r3, %r3, %r29; setp.lt.u32 %p1, %r3, 2048; @%p1 bra F; bar.sync 0;"
)


def rows_at_random() -> np.ndarray:
    """Return byte addresses of distinct rows for each lane."""
    rows = np.stack([RNG.permutation(512)[:32] for _ in range(WARPS)]).reshape(-1)
    return (16 * rows).astype(np.uint32)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("guard", ["", "@%p2 "])
def test_ldmatrix(launch, count, transposed, guard):
    memory = RNG.integers(0, 65536, 4096).astype("u2")
    where, result = rows_at_random(), np.zeros((LANES, count), "u4")
    names = ", ".join(f"%d{k}" for k in range(count))
    code = f"setp.ge.u32 %p2, %r0, 32; {guard}ldmatrix.sync.aligned.m8n8.x{count}{transposed}"
    code += f".shared.b16 {{{names}}}, [%r2]; mad.wide.u32 %q7, %r0, {4 * count}, %q2;"
    code += "".join(f"st.global.u32 [%q7+{4 * k}], %d{k};" for k in range(count))
    args = [memory.view("u4"), where, result]
    counters = launch(SETUP + FILL + code, args, block=LANES).counters
    wanted = np.zeros((WARPS, 32, count, 2), "u2")
    for w in range(bool(guard), WARPS):
        for j in range(count):
            starts = where.reshape(WARPS, 32)[w, 8 * j : 8 * j + 8] // 2
            matrix = np.stack([memory[s : s + 8] for s in starts])
            matrix = matrix.T if transposed else matrix
            for lane in range(32):
                wanted[w, lane, j] = matrix[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2]
    np.testing.assert_array_equal(result.view("u2").reshape(wanted.shape), wanted)
    assert counters["smsp__inst_executed_op_ldsm.sum"] == WARPS - bool(guard)
    assert counters["smsp__inst_executed_op_shared_ld.sum"] == 0


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", ["", ".trans"])
def test_stmatrix(launch, count, transposed):
    held = RNG.integers(0, 2**32, (LANES, count), np.uint64).astype("u4")
    where, memory = rows_at_random(), np.zeros(2048, "u4")
    where[:] = np.tile(where[:32], WARPS)  # all warps write the same rows; the last one wins
    code = f"mad.wide.u32 %q7, %r0, {4 * count}, %q2;"
    code += "".join(f"ld.global.u32 %d{k}, [%q7+{4 * k}];" for k in range(count))
    names = ", ".join(f"%d{k}" for k in range(count))
    code += f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r2], {{{names}}};"
    code += (
        "bar.sync 0; mov.u32 %r3, %r0; S: mad.lo.u32 %r4, %r3, 4, %r1; mul.wide.u32 %q8, %r3, 4;"
    )
    code += "add.u64 %q8, %q0, %q8; ld.shared.u32 %r5, [%r4]; st.global.u32 [%q8], %r5;"
    code += "add.u32 %r3, %r3, %r29; setp.lt.u32 %p1, %r3, 2048; @%p1 bra S;"
    counters = launch(SETUP + code, [memory, where, held], block=LANES).counters
    halves = held.view("u2").reshape(WARPS, 32, count, 2)
    wanted = np.zeros(4096, "u2")
    for j in range(count):
        matrix = np.zeros((8, 8), "u2")
        for lane in range(32):
            matrix[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2] = halves[-1, lane, j]
        matrix = matrix.T if transposed else matrix
        for i in range(8):
            start = where[8 * j + i] // 2
            wanted[start : start + 8] = matrix[i]
    np.testing.assert_array_equal(memory.view("u2"), wanted)
    assert counters["smsp__inst_executed_op_shared_stsm.sum"] == WARPS


def test_movmatrix_transposes(compute):
    x = RNG.integers(0, 2**32, 32, np.uint64).astype("u4")
    [got] = compute("movmatrix.sync.aligned.m8n8.trans.b16 %x, %a;", [("b32", x)], ["b32"])
    np.testing.assert_array_equal(got.view("u2").reshape(8, 8), x.view("u2").reshape(8, 8).T)


@pytest.mark.parametrize(("stride", "conflicts"), [(16, 0), (144, 0), (128, 28), (32, 4), (0, 0)])
def test_eight_rows_are_a_phase(launch, stride, conflicts):
    where = (np.arange(32) * stride).astype(np.uint32)
    code = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%d0, %d1, %d2, %d3}, [%r2];"
    code += "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%d0, %d1, %d2, %d3};"
    counters = launch(SETUP + code, [np.zeros(2048, "u4"), where]).counters
    for op in ("ld", "st"):
        name = f"pipe_lsu_mem_shared_op_{op}.sum"
        assert counters[f"l1tex__data_bank_conflicts_{name}"] == conflicts
        waves = counters[f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"]
        assert waves == 4 + conflicts


ONE = "sync.aligned.m8n8.x1.shared.b16"


ONE = "sync.aligned.m8n8.x1.shared.b16"


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (f"ldmatrix.{ONE} {{%d0}}, [%r2+8];", MisalignedAddressError, "width, 16 bytes"),
        (f"stmatrix.{ONE} [%r2+8192], {{%d0}};", OutOfBoundsError, "8192 bytes of shared"),
        (f"ldmatrix.{ONE} {{%d0, %d1}}, [%r2];", UnsupportedInstructionError, "unknown comb"),
        (f"ldmatrix.{ONE[:-3]}b8 {{%d0}}, [%r2];", UnsupportedInstructionError, "unknown comb"),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%d0}, {%d1},"
            "{%f0, %f1, %f2, %f3};",
            UnsupportedInstructionError,
            "unknown combination",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%f0, %f1, %f2, %f3},"
            "{%d0, %d1, %d2, %d3}, {%d0, %d1}, {%f0, %f1, %f2, %f3};",
            UnsupportedInstructionError,
            "unknown combination",
        ),
        (
            "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3},"
            "{%d0, %d1, %d2, %d3}, {%d0, %d1, %d2, %d3}, {%f0, %f1, %f2, %f3}, %d0, 0;",
            UnsupportedInstructionError,
            "sparse matrices are not emulated",
        ),
    ],
)
def test_what_is_refused(launch, code, error, message):
    with pytest.raises(error, match=message):
        launch(SETUP + code, [np.zeros(2048, "u4"), np.zeros(32, "u4")])


def test_lanes_whose_addresses_are_not_used_may_hold_anything(launch):
    where = np.full(32, 0x7FFFFFF1, np.uint32)
    where[:8] = 16 * np.arange(8)
    code = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d0}, [%r2];"
    launch(SETUP + code, [np.zeros(2048, "u4"), where])
