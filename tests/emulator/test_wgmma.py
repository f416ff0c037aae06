"""wgmma: sources of operands, products, and a pipelined matrix product."""

from __future__ import annotations

from functools import partial

import hopper
import numpy as np
import pytest
from hopper import Mma, descriptor, module, rows_of, warpgroup
from machine import TIERS
from test_tensor_maps import launch as run_kernel

from gemmlab import TensorMap
from gemmlab.emulator import run
from gemmlab.emulator.arithmetic import formats
from gemmlab.errors import EmulationError, InputError, OutOfBoundsError, UnsupportedInstructionError

RNG = np.random.default_rng(11)
SIZES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}


@pytest.fixture(params=TIERS)
def launch(request):
    """Run a kernel and return its first result."""
    return partial(run_kernel, tier=request.param)


def bytes_of(type_: str, shape: tuple[int, int]) -> np.ndarray:
    """Return a matrix of small numbers of a type as (rows, bytes)."""
    numbers = RNG.integers(-8, 9, shape)
    if type_ == "f16":
        return numbers.astype(np.float16).view(np.uint8)
    if type_ in ("bf16", "tf32"):
        words = numbers.astype(np.float32).view(np.uint32)
        half = (words >> 16).astype(np.uint16)
        return (half if type_ == "bf16" else words).view(np.uint8).reshape(shape[0], -1)
    if type_ in ("s8", "u8"):
        return RNG.integers(0, 256, shape).astype(np.uint8)
    with np.errstate(invalid="ignore"):  # includes signalling NaNs
        table = formats.values(np.arange(256, dtype=np.uint8), type_)
    whole = (np.abs(table) <= 4) & (table == np.round(table))
    return RNG.choice(np.flatnonzero(whole), shape).astype(np.uint8)


def packed(rows: np.ndarray) -> np.ndarray:
    """Arrange (rows, bytes) as steps of 32 bytes of k, each in core matrices of 8 rows of 16
    bytes."""
    count, nbytes = rows.shape
    return rows.reshape(count // 8, 8, nbytes // 32, 2, 16).transpose(2, 0, 3, 1, 4).copy()


def product(
    n: int, types: tuple[str, str, str], k: int, **options
) -> tuple[Mma, np.ndarray, np.ndarray]:
    """Return a chain of instructions over k, its shared memory image, and A·B in float64."""
    a, b = bytes_of(types[1], (64, k)), bytes_of(types[2], (n, k))
    left, right = packed(a), packed(b)
    image = np.concatenate([left.reshape(-1), right.reshape(-1)])
    exact = formats.values(a, types[1]) @ formats.values(b, types[2]).T
    a_at, b_at = descriptor(0, 128, 256), descriptor(left.size, 128, 256)
    steps = {"steps": len(left), "step_a": left[0].size, "step_b": right[0].size}
    return Mma(n, types, a_at, b_at, **steps, **options), image.view(np.uint32), exact


FLOATS = [("f32", t, t) for t in ("f16", "bf16", "tf32", "e4m3", "e5m2")] + [
    ("f32", "e4m3", "e5m2")
]
FLAGS = {"f16": "1, 1, 0, 0", "bf16": "1, 1, 0, 0", "s8": "", "u8": ""}


@pytest.mark.parametrize("n", [8, 40])
@pytest.mark.parametrize("types", FLOATS, ids=".".join)
def test_products_of_small_numbers_are_exact(launch, types, n):
    mma, image, exact = product(
        n, types, 4 * 32 // SIZES[types[1]], flags=FLAGS.get(types[1], "1, 1")
    )
    got = rows_of(launch(warpgroup(mma, image)).view(np.float32), n)
    np.testing.assert_array_equal(got, exact)


def test_accumulators_of_half_precision(launch):
    mma, image, exact = product(16, ("f16", "f16", "f16"), 32)
    before = RNG.integers(-50, 50, (64, 16)).astype(np.float16)
    # Of 8 columns, a lane holds two adjacent ones in one register; rows g and g + 8 are in two.
    parts = before.reshape(4, 2, 8, 2, 4, 2).transpose(3, 1, 0, 2, 4, 5)
    words = np.ascontiguousarray(parts).view(np.uint32).reshape(4, 128)
    got = launch(warpgroup(mma, image, words)).view(np.float16).reshape(2, 2, 4, 8, 4, 2)
    got = got.transpose(2, 1, 3, 0, 4, 5).reshape(64, 16)
    np.testing.assert_array_equal(got, (exact + before).astype(np.float16))


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("types", [("s8", "s8"), ("u8", "s8"), ("u8", "u8")], ids=".".join)
def test_integers_wrap_or_saturate(launch, types, saturates):
    suffix = ".satfinite" if saturates else ""
    mma, image, _ = product(24, ("s32", *types), 64, flags="", satfinite=suffix)
    before = RNG.choice([2**31 - 1, -(2**31), 5], (12, 128)).astype(np.int32)
    got = rows_of(launch(warpgroup(mma, image, before)).view(np.int32), 24)
    total = rows_of(before, 24).astype(np.int64)
    for part in steps_of(mma, image):
        total += part
        total = np.clip(total, -(2**31), 2**31 - 1) if saturates else total.astype(np.int32)
    np.testing.assert_array_equal(got, total)


def steps_of(mma: Mma, image: np.ndarray) -> list[np.ndarray]:
    """Return the products of each step of 32 elements of k."""
    data, a, b = image.view(np.uint8), 2048, 32 * mma.n
    found = []
    for step in range(mma.steps):
        left = data[a * step : a * (step + 1)].reshape(8, 2, 8, 16).transpose(0, 2, 1, 3)
        start = a * mma.steps + b * step
        right = data[start : start + b].reshape(-1, 2, 8, 16).transpose(0, 2, 1, 3)
        x, y = (
            formats.values(rows.reshape(-1, 32), type_)
            for rows, type_ in zip((left, right), mma.types[1:], strict=True)
        )
        found.append((x @ y.T).astype(np.int64))
    return found


def test_a_comes_from_registers(launch):
    mma, image, exact = product(16, ("f32", "f16", "f16"), 48)
    rows = image.view(np.uint8)[: 3 * 2048].reshape(3, 4, 2, 2, 8, 4, 4)
    # (step, warp, row half, k half, g, t, bytes) to (step, k half, row half, warp, g, t, bytes)
    words = np.ascontiguousarray(rows.transpose(0, 3, 2, 1, 4, 5, 6)).view(np.uint32)
    mma = Mma(16, mma.types, words.reshape(3, 4, 128), mma.b, 3, 0, mma.step_b, "1, 1, 0")
    got = rows_of(launch(warpgroup(mma, image)).view(np.float32), 16)
    np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize(
    ("flags", "sign"), [("-1, 1, 0, 0", -1), ("1, -1, 0, 0", -1), ("-1, -1, 0, 0", 1)]
)
def test_operands_are_negated(launch, flags, sign):
    mma, image, exact = product(8, ("f32", "f16", "f16"), 16, flags=flags)
    before = np.ones((4, 128), np.float32)
    got = rows_of(launch(warpgroup(mma, image, before)).view(np.float32), 8)
    np.testing.assert_array_equal(got, sign * exact + 1)


def address(row: int, k: int, transposed: bool, leading: int, stride: int, swizzle: str) -> int:
    """Return the byte offset of a 16-bit element before swizzling (PTX ISA, "Shared Memory Matrix
    Layout": canonical layouts)."""
    span = SPANS[swizzle]
    if not transposed:
        across = leading if swizzle == "none" else 16
        return row // 8 * stride + row % 8 * span + k // 8 * across + k % 8 * 2
    if swizzle == "none":
        return row // 8 * stride + k // 8 * leading + k % 8 * 16 + row % 8 * 2
    per_span = span // 2
    inside = row % per_span * 2 + k % 8 * span
    return row // per_span * leading + k // 8 * stride + inside


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("swizzle", SPANS)
@pytest.mark.parametrize(
    ("start", "leading", "stride", "base"),
    [(0, 1024, 2048, 0), (32, 512, 1024, 0), (640, 2048, 1024, 0), (384, 2048, 1024, 3)],
)
def test_descriptors(launch, operand, transposed, swizzle, start, leading, stride, base):
    """One operand is the identity, and the elements of the other are their own indices."""
    first, rows = 4096, 64
    image = np.zeros(32768, np.uint8)
    identity = np.zeros((64, 16), np.float16)
    identity[:16] = np.eye(16)
    image[:2048] = packed(identity.view(np.uint8)).reshape(-1)
    cells = image.view(np.float16)
    cells[first // 2 :] = np.arange(first // 2, 16384) % 2039
    wanted = np.zeros((rows, 16))
    mask = {"none": 0, "32B": 1, "64B": 3, "128B": 7}[swizzle]
    for row, k in np.ndindex(rows, 16):
        place = first + start + address(row, k, transposed, leading, stride, swizzle)
        place ^= ((place >> 7) - base & mask) << 4
        wanted[row, k] = cells[place // 2]
    unit = descriptor(0, 128, 256)
    numbers = descriptor(first + start, leading, stride, swizzle, base)
    types = "f32", "f16", "f16"
    if operand == "a":
        mma = Mma(16, types, numbers, unit, flags=f"1, 1, {int(transposed)}, 0")
    else:
        mma = Mma(64, types, unit, numbers, flags=f"1, 1, 0, {int(transposed)}")
    got = rows_of(launch(warpgroup(mma, image.view(np.uint32))).view(np.float32), mma.n)
    np.testing.assert_array_equal(got if operand == "a" else got[:16].T, wanted)


def test_faults(launch):
    mma, image, _ = product(8, ("f32", "f16", "f16"), 16)
    far = Mma(8, mma.types, mma.a, descriptor(1 << 17, 128, 256))
    with pytest.raises(OutOfBoundsError, match="ends past the end of shared memory"):
        launch(warpgroup(far, image))
    kernel = warpgroup(mma, image)
    kernel.text = kernel.text.replace("STEP:", "setp.eq.u32 %p6, %r0, 37; @%p6 ret; STEP:")
    with pytest.raises(EmulationError, match="all lanes of a warp must execute wgmma"):
        launch(kernel)
    kernel = warpgroup(mma, image)
    kernel.text = kernel.text.replace("wgmma.mma_async.sync", "wgmma.mma_async.sp.sync")
    with pytest.raises(UnsupportedInstructionError, match="sparse matrices are not emulated"):
        launch(kernel)


@pytest.mark.slow
def test_counters_and_fast_sums():
    mma, image, exact = product(64, ("f32", "f16", "f16"), 64)
    kernel = warpgroup(mma, image)
    found = run(kernel.text, "k", (1, 1, 1), (128, 1, 1), kernel.args, image.nbytes, tensor="fast")
    np.testing.assert_array_equal(rows_of(kernel.results[0].view(np.float32), 64), exact)
    names = ("", "_op_gmma", "_op_hmma", "_op_imma")
    counts = [found.counters[f"smsp__inst_executed_pipe_tensor{n}.sum"] for n in names]
    assert counts == [16, 16, 16, 0]
    with pytest.raises(InputError, match="'quick' is not 'exact' or 'fast'"):
        run(kernel.text, "k", (1, 1, 1), (128, 1, 1), kernel.args, image.nbytes, tensor="quick")


# A producer warp fills a ring of two stages; a warpgroup multiplies and releases stages.
PIPELINE = """
.reg .f32 %d<32>; .reg .b64 %da; .reg .b64 %db;
mov.u32 %r30, s; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;
shl.b32 %r1, %r1, 6; shl.b32 %r2, %r2, 6; setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1;
mbarrier.init.shared.b64 [empty], 128; mbarrier.init.shared.b64 [empty+8], 128;
READY: fence.proxy.async.shared::cta; bar.sync 0; mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0;
setp.ge.u32 %p1, %r0, 128; @%p1 bra PRODUCE;
setmaxnreg.inc.sync.aligned.u32 232; setp.ne.u32 %p4, 0, 0;
CONSUME: shl.b32 %r6, %r4, 3; mov.u32 %r7, full; add.u32 %r7, %r7, %r6;
C: mbarrier.try_wait.parity.shared.b64 %p2, [%r7], %r5, 1000; @!%p2 bra C;
mad.lo.u32 %r8, %r4, 16384, %r30; shr.u32 %r8, %r8, 4; cvt.u64.u32 %q10, %r8;
or.b64 %da, %q10, LAYOUT; add.u64 %db, %da, 512; wgmma.fence.sync.aligned;
MMAS
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
mov.u32 %r9, empty; add.u32 %r9, %r9, %r6; mbarrier.arrive.release.cta.shared::cta.b64 _, [%r9];
NEXT @%p3 bra CONSUME; bra DONE;
PRODUCE: setmaxnreg.dec.sync.aligned.u32 40; elect.sync _|%p2, -1; @!%p2 bra OUT; mov.u32 %r5, 1;
LOAD: shl.b32 %r6, %r4, 3; mov.u32 %r9, empty; add.u32 %r9, %r9, %r6;
P: mbarrier.try_wait.parity.shared.b64 %p2, [%r9], %r5; @!%p2 bra P;
mov.u32 %r7, full; add.u32 %r7, %r7, %r6; mad.lo.u32 %r8, %r4, 16384, %r30; shl.b32 %r10, %r3, 6;
mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 16384; add.u32 %r11, %r8, 8192;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
[%r8], [%q0, {%r10, %r1}], [%r7];
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
[%r11], [%q1, {%r10, %r2}], [%r7];
NEXT @%p3 bra LOAD; bra OUT;
DONE: shr.u32 %r6, %r0, 5; shl.b32 %r6, %r6, 4; shr.u32 %r7, %r0, 2; and.b32 %r7, %r7, 7;
add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r1; and.b32 %r7, %r0, 3; shl.b32 %r7, %r7, 1;
add.u32 %r7, %r7, %r2; mov.u32 %r9, %nctaid.y; shl.b32 %r9, %r9, 6; mad.lo.u32 %r8, %r6, %r9, %r7;
mad.wide.u32 %q3, %r8, 4, %q2; mul.wide.u32 %q4, %r9, 32; add.u64 %q4, %q4, %q3;
STORES
OUT:
"""


def pipeline(k: int) -> str:
    names = ", ".join(f"%d{i}" for i in range(32))
    opcode = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    mma = f"{opcode} {{{names}}}, %da, %db, %p4, 1, 1, 0, 0;"
    step = "setp.eq.u32 %p4, 0, 0; add.u64 %da, %da, 2; add.u64 %db, %db, 2;"
    following = (
        f"add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, {k // 64}; xor.b32 %r4, %r4, 1;"
        "setp.eq.u32 %p5, %r4, 0; @%p5 xor.b32 %r5, %r5, 1;"
    )
    stores = "".join(
        f"st.global.v2.f32 [%q{3 + i % 2}+{32 * (i // 2)}], {{%d{2 * i}, %d{2 * i + 1}}};"
        for i in range(16)
    )
    body = PIPELINE.replace("MMAS", (mma + step) * 4).replace("NEXT", following)
    body = body.replace("STORES", stores).replace("LAYOUT", str(descriptor(0, 16, 1024, "128B")))
    declared = ".shared .align 8 .b64 full[2]; .shared .align 8 .b64 empty[2];" + hopper.DYNAMIC
    return module(["map", "map", "u64"], body, declared)


@pytest.mark.parametrize("order", ["in-order", "reversed", 1, 2])
def test_a_warp_specialised_product(order):
    m, n, k = 64, 128, 256
    a, b = (RNG.standard_normal((x, k)).astype(np.float16) for x in (m, n))
    c = np.zeros((m, n), np.float32)
    args = [*(TensorMap(x, (64, 64), swizzle="128B") for x in (a, b)), c]
    found = run(pipeline(k), "k", (m // 64, n // 64, 1), (160, 1, 1), args, 32768, order)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    # each of the k/16 instructions truncates its sum to 24 bits
    bound = k / 16 * 2.0**-23 * (np.abs(a).astype(np.float64) @ np.abs(b).T.astype(np.float64))
    assert (np.abs(c - exact) <= bound).all()
    counters = found.counters
    assert counters["smsp__inst_executed_pipe_tensor_op_gmma.sum"] == 2 * 4 * k // 16
    assert counters["smsp__inst_executed_op_tma_ld.sum"] == 2 * 2 * k // 64
    read = counters["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"]
    assert read == 2 * 2 * 64 * k * 2
