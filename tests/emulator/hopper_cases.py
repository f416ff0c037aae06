"""Kernels whose results on an H200 are recorded: random bits, wide exponents, odd boxes, NaNs.

Each case is drawn from a generator seeded by its name, so the file of readings holds only a digest
of the results.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable

import numpy as np
from hopper import Kernel, Mma, box_load, box_store, descriptor, image_bytes, module, warpgroup
from test_wgmma import FLAGS, SIZES, packed

from gemmlab import TensorMap

Rng = np.random.Generator
FAMILIES = ["normal", "uniform", "wide", "cancelling", "bits"]


def numbers(rng: Rng, family: str, shape: tuple[int, ...], spread: int) -> np.ndarray:
    """Return float64 numbers; `wide` ones have exponents from -spread to spread."""
    x = rng.standard_normal(shape)
    if family == "uniform":
        return rng.random(shape)
    if family == "wide":
        return x * 2.0 ** rng.integers(-spread, spread + 1, shape)
    if family == "cancelling":
        x = np.round(x * 64) / 64
        return np.where(rng.random(shape) < 0.5, x, x * 2.0 ** rng.integers(-14, 14, shape))
    return x


def elements(rng: Rng, type_: str, family: str, shape: tuple[int, int]) -> np.ndarray:
    """Return a matrix of a type as (rows, bytes). `bits`: arbitrary bits, including NaNs and
    infinities."""
    nbytes = shape[1] * SIZES[type_]
    if family == "bits" or type_ in ("s8", "u8"):
        return rng.integers(0, 256, (shape[0], nbytes), dtype=np.uint8)
    if type_ in ("e4m3", "e5m2"):
        keep, put = (0x9F, 0x20) if type_ == "e4m3" else (0x8F, 0x30)
        return rng.integers(0, 256, shape, dtype=np.uint8) & np.uint8(keep) | np.uint8(put)
    x = numbers(rng, family, shape, 12 if type_ == "f16" else 50)
    if type_ == "f16":
        return x.astype(np.float16).view(np.uint8)
    words = x.astype(np.float32).view(np.uint32)
    # tf32 registers keep bits that the tensor cores ignore.
    part = (words >> 16).astype(np.uint16) if type_ == "bf16" else words
    return part.view(np.uint8).reshape(shape[0], nbytes)


def product(types: tuple[str, str, str], family: str, k: int, accumulates: bool, n: int = 16):
    def make(rng: Rng) -> Kernel:
        left = packed(elements(rng, types[1], family, (64, k)))
        right = packed(elements(rng, types[2], family, (n, k)))
        image = np.concatenate([left.reshape(-1), right.reshape(-1)]).view(np.uint32)
        where = descriptor(0, 128, 256), descriptor(left.size, 128, 256)
        flags = FLAGS.get(types[1], "1, 1")
        mma = Mma(n, types, *where, len(left), left[0].size, right[0].size, flags)
        before = rng.standard_normal((mma.num_registers, 128)).astype(np.float32)
        if types[0] != "f32":
            before = (rng.standard_normal((mma.num_registers, 256))).astype(np.float16)
        return warpgroup(mma, image, before if accumulates else None)

    return make


def load(shape, box, coordinates, offset=0, dtype="uint16", **options):
    def make(rng: Rng) -> Kernel:
        size = np.dtype(dtype).itemsize
        array = rng.integers(0, 1 << 8 * size, shape, dtype=f"u{size}").view(dtype)
        return box_load(TensorMap(array, box, **options), coordinates, offset)

    return make


def store(shape, box, coordinates, operation="", dtype="uint16", family="bits", **options):
    def make(rng: Rng) -> Kernel:
        size = np.dtype(dtype).itemsize
        array = rng.integers(0, 1 << 8 * size, shape, dtype=f"u{size}").view(dtype)
        if family != "bits":
            array = numbers(rng, family, shape, 8).astype(dtype)
        tensor_map = TensorMap(array, box, **options)
        image = rng.integers(0, 1 << 32, image_bytes(tensor_map) // 4, dtype=np.uint32)
        if family != "bits":
            image = numbers(rng, family, (image.nbytes // size,), 8).astype(dtype).view(np.uint32)
        return box_store(tensor_map, image, coordinates, operation)

    return make


STEPS = {
    "mbarrier.arrive.shared.b64 %q1, [m];": 1,
    "mbarrier.arrive.release.cta.shared::cta.b64 %q1, [m], {n};": None,
    "mbarrier.arrive.expect_tx.shared.b64 %q1, [m], {n};": 1,
    "mbarrier.arrive_drop.shared.b64 %q1, [m];": 1,
    "mbarrier.expect_tx.relaxed.cta.shared.b64 [m], {n};": 0,
    "mbarrier.complete_tx.relaxed.cta.shared.b64 [m], {n};": 0,
}


def phases(rng: Rng) -> Kernel:
    """One thread takes random steps and records after each whether phase 0 is complete and how many
    arrivals were pending."""
    count = int(rng.integers(3, 7))
    pending, expected, tx, lines = count, count, 0, []
    for _ in range(16):
        text = list(STEPS)[rng.integers(len(STEPS))]
        n = int(rng.integers(1, 4))
        fixed = STEPS[text]
        arrivals = n if fixed is None else fixed
        drops = "drop" in text
        if arrivals > pending or (drops and expected < 2):
            continue
        tx += n * ("expect_tx" in text) - n * ("complete_tx" in text)
        pending, expected = pending - arrivals, expected - drops
        if pending == tx == 0:
            pending = expected
        lines.append(text.format(n=n))
    x = np.full((len(lines), 2), 99, np.uint32)
    body = [f"mbarrier.init.shared.b64 [m], {count};"]
    for i, line in enumerate(lines):
        body.append(f"{line} mbarrier.test_wait.parity.shared.b64 %p1, [m], 0;")
        body.append(f"selp.u32 %r1, 1, 0, %p1; st.global.u32 [%q0+{8 * i}], %r1;")
        if "%q1" in line:
            body.append(
                f"mbarrier.pending_count.b64 %r2, %q1; st.global.u32 [%q0+{8 * i + 4}], %r2;"
            )
    text = module(["u64"], "\n".join(body), ".shared .align 8 .b64 m;")
    return Kernel(text, [x], [x], threads=1)


def cases() -> dict[str, Callable[[Rng], Kernel]]:
    found: dict[str, Callable[[Rng], Kernel]] = {}
    for family in FAMILIES:
        for k, accumulates in ((16, True), (512, False)):
            for types in (("f32", "f16", "f16"), ("f32", "bf16", "bf16"), ("f16", "f16", "f16")):
                name = f"wgmma/{'.'.join(types)}/{family}/{k}"
                found[name] = product(types, family, k, accumulates)
        for k, accumulates in ((8, True), (256, False)):
            name = f"wgmma/f32.tf32.tf32/{family}/{k}"
            found[name] = product(("f32", "tf32", "tf32"), family, k, accumulates)
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            for result, family in (("f32", "normal"), ("f32", "bits"), ("f16", "normal")):
                name = f"wgmma/{result}.{a}.{b}/{family}/128"
                found[name] = product((result, a, b), family, 128, True)
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            found[f"wgmma/s32.{a}.{b}/128"] = product(("s32", a, b), "bits", 128, True)
    for swizzle, span in (("none", 256), ("32B", 32), ("64B", 64), ("128B", 128)):
        for row in (16, 32, 64, 128):
            if row <= span:
                box = (16, row // 2)
                name = f"load/{swizzle}/rows of {row}"
                found[name] = load((40, 72), box, (8, 3), 384, swizzle=swizzle)
                found[f"{name}, outside"] = load((40, 72), box, (-8, 30), swizzle=swizzle)
        found[f"store/{swizzle}"] = store(
            (40, 72), (16, min(span, 64) // 2), (8, 3), swizzle=swizzle
        )
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((1000,), (64,)),
        ((6, 7, 16), (3, 4, 8)),
        ((3, 4, 5, 8), (2, 3, 4, 8)),
        ((3, 3, 3, 3, 8), (2, 2, 2, 2, 8)),
    )
    for shape, sides in shapes:
        rank = len(shape)
        for first, others in ((0, 1), (-4, -1), (4, 2)):
            at = (first, *(others,) * (rank - 1))
            found[f"load/{rank} axes at {first}"] = load(shape, sides, at, dtype="uint32")
    for stride in (2, 3, 8):
        for row in (2, -5, 35):
            name = f"load/every {stride} from {row}"
            found[name] = load((40, 72), (9, 16), (8, row), element_strides=(stride, 1))
    for format, dtype in (
        ("float16", "float16"),
        ("bfloat16", "uint16"),
        ("float32", "float32"),
        ("tfloat32", "float32"),
        ("float64", "float64"),
    ):
        options = {"dtype": dtype, "format": format}
        found[f"load/{format}"] = load((8, 32), (6, 16), (0, 0), **options)
        found[f"load/{format}, NaN outside"] = load(
            (8, 32), (6, 16), (24, 4), fill="nan", **options
        )
    for operation in ("add", "min", "max", "and", "or", "xor", "inc", "dec"):
        name = f"reduce/{operation}/uint32"
        found[name] = store((12, 16), (4, 8), (8, 2), operation, "uint32")
    for format, dtype in (("float16", "float16"), ("bfloat16", "uint16")):
        for operation in ("add", "min", "max"):
            name = f"reduce/{operation}/{format}"
            found[name] = store((12, 16), (4, 8), (8, 2), operation, dtype, format=format)
    for family in ("bits", "wide"):
        name = f"reduce/add/float32/{family}"
        found[name] = store((12, 16), (4, 8), (8, 2), "add", "float32", family)
    for number in range(12):
        found[f"mbarrier/{number}"] = phases
    return found


CASES = cases()


def make(name: str) -> Kernel:
    return CASES[name](np.random.default_rng(zlib.crc32(name.encode())))


def digest(results: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(x.tobytes() for x in results)).hexdigest()[:16]
