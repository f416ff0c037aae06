"""The packing kernels match their reference bit for bit; the reference keeps its rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulation import DeviceImage
from hypothesis import example, given
from hypothesis import strategies as st

from gemmlab.kernels.gemm.sm90.config import (
    BF16X6,
    FAR,
    FP16X3,
    NO_SHORTFALL,
    SCHEMES,
    WIDE_COUNT,
    PackConfig,
    Scheme,
)
from gemmlab.linalg import reference
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.launch import PlannedLaunch
from gemmlab.linalg.planning.packed import Packed
from gemmlab.linalg.shapes import Operand

SEEDS, SCHEME = st.integers(0, 2**32 - 1), st.sampled_from(list(SCHEMES.values()))


def matrix(vectors: int, depth: int) -> np.ndarray:
    """Row vectors of all kinds: ordinary, tiny, huge, of wide range, zero, not finite."""
    rng = np.random.default_rng(vectors * depth)
    rows = rng.standard_normal((vectors, depth))
    scales = np.resize([1.0, 1e-41, 1e-37, 1e38, 1.0, 0.0, 1.0, 1.0], vectors)
    rows *= scales[:, None]
    rows[4::8] = np.exp(15 * rows[4::8])
    rows[6::8, depth // 2] = np.nan
    rows[7::8, depth - 1] = -np.inf
    return np.clip(rows, -3e38, 3e38, where=np.isfinite(rows), out=rows).astype(np.float32)


def wide(seed: int) -> np.ndarray:
    """Rows whose elements span the range of float32, or a narrow one."""
    rng = np.random.default_rng(seed)
    middle, spread = rng.uniform(-149, 128), rng.choice([0.0, 4.0, 40.0])
    exponents = np.clip(middle + spread * rng.standard_normal((3, 8)), -149, 127)
    signs = rng.choice([-1.0, 0.0, 1.0], (3, 8))
    return (signs * rng.uniform(1, 1.99, (3, 8)) * 2.0 ** np.floor(exponents)).astype(np.float32)


WAYS = [(BF16X6, "nearest", 24), *((FP16X3, way, 23) for way in ("nearest", "down", "up"))]


@pytest.mark.parametrize(("scheme", "first", "bits"), WAYS)
@given(seed=SEEDS)
def test_the_reference_loses_no_more_than_it_says(
    scheme: Scheme, first: str, bits: int, seed: int
) -> None:
    rows = wide(seed)
    expected = reference.pack(rows, scheme, first)
    exact = rows.astype(np.float64)
    error = np.abs(expected.sum(scheme) - exact)
    bits -= first != "nearest"
    smallest = {"fp16x3": -24, "bf16x6": -133}[scheme.name]
    steps = np.ldexp(0.5, smallest + expected.unscale)[:, None]  # half an ulp of the last part
    assert (error <= np.maximum(np.abs(exact) * 2.0**-bits, steps)).all()


@pytest.mark.parametrize(("first", "side"), [("down", 1), ("up", -1)])
def test_rests_of_first_parts_rounded_one_way_have_one_sign(first: str, side: int) -> None:
    rows = np.random.default_rng(1).standard_normal((20, 50)).astype(np.float32)
    high, low = reference.as_float32(reference.pack(rows, FP16X3, first).parts, "float16")
    assert (low * rows * side >= 0).all() and (low * rows * side > 0).mean() > 0.99
    assert (np.abs(low) <= np.abs(high) * 2.0**-10).all()


@given(SEEDS, SCHEME)
def test_the_largest_element_has_the_peak_exponent(seed: int, scheme: Scheme) -> None:
    rows = wide(seed)
    largest = np.abs(rows.astype(np.float64)).max(axis=1)
    scaled = np.ldexp(largest, -reference.pack(rows, scheme).unscale)
    live = largest > 0
    assert (scaled[live] >= 2.0**scheme.peak).all() and (
        scaled[live] < 2.0 ** (scheme.peak + 1)
    ).all()
    assert (reference.pack(rows, scheme).unscale[~live] == 0).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_ties_of_the_last_part_go_away_from_zero(sign: int) -> None:
    step = 2.0**-23
    rests = np.array([2049, -2049, 2047, -2047, 2050, -1])  # the first two are ties
    row = (sign * (1.5 + rests * step)).astype(np.float32)[None]
    kept = sign * (1.5 + np.array([2050, -2048, 2047, -2047, 2050, -1]) * step)
    assert reference.pack(row, FP16X3).sum(FP16X3)[0].tolist() == kept.tolist()


def test_elements_at_risk_are_counted() -> None:
    row = np.array([[1.0, 2.0**-17, 2.0**-18, 0.0, -(2.0**-30)]], np.float32)
    assert reference.pack(row, FP16X3).risk.tolist() == [2]
    assert reference.pack(row, BF16X6).risk.tolist() == [0]


def test_a_vector_with_many_elements_at_risk_is_wide() -> None:
    rows = np.full((3, 3000), 2.0**-21, np.float32)
    rows[:, 0] = 1.0
    rows[1, 20:] = 0.0
    rows[2, 21:] = 0.0
    assert reference.pack(rows, FP16X3).status == (2999 + 19 + 20 + WIDE_COUNT * 2, 0, 2999)


@pytest.mark.parametrize(("bits", "wide"), [(19, False), (20, True)])
def test_a_vector_is_not_wide_if_its_other_elements_are_large_enough(bits: int, wide: bool) -> None:
    row = np.full((1, 1000), 2.0**-bits, np.float32)
    row[:, :150] = 2.0**-23
    row[:, -1] = 1.0
    found = reference.pack(row, FP16X3)
    assert found.shortfall[0] == pytest.approx(0.150 * 23 + 0.849 * bits, 1e-5)
    assert found.status == (999 + WIDE_COUNT * wide, 0, 999)


@pytest.mark.parametrize(("exponent", "near"), [(77, True), (78, False), (-49, True), (-50, False)])
def test_a_scale_that_is_not_near_1_is_recorded(exponent: int, near: bool) -> None:
    rows = np.array([[1.0], [2.0**exponent]], np.float32)
    assert reference.pack(rows, FP16X3).status[2] == (0 if near else FAR)


@pytest.mark.parametrize(("peak", "known"), [(2.0**-64, True), (2.0**-65, False), (0.0, False)])
def test_vectors_of_tiny_numbers_have_no_shortfall(peak: float, known: bool) -> None:
    row = np.array([[peak, peak / 2, peak / 2, peak / 4]], np.float32)
    assert reference.pack(row, FP16X3).shortfall[0] == (1 if known else NO_SHORTFALL)


@given(SEEDS)
@example(9355)  # would overflow float32
def test_shortfalls_bound_what_the_terms_add_up_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(1, 200))
    pair = np.exp2(rng.uniform(0, 17, (2, 1)) * rng.standard_normal((2, depth)))
    pair[rng.random((2, depth)) < rng.choice([0, 0.2, 0.6], (2, 1))] = 0
    if rng.random() < 0.5:  # as far from the bound as an order can be
        pair = np.sort(pair, axis=1)
        pair[1] = pair[1, ::-1]
    finite = 127 - int(np.frexp(pair.max())[1])  # the largest factor's exponent
    pair *= 2.0 ** min(int(rng.integers(-70, 70)), finite)
    a, b = (pair := pair.astype(np.float32)).astype(float)
    peaks = np.frexp(pair.astype(float).max(axis=1))[1] - 1
    shortfall = float(reference.shortfalls(pair).astype(float).sum())
    if shortfall <= 2 * FP16X3.peak:
        assert a @ b >= depth * 2.0 ** (peaks.sum() - shortfall) * (1 - 1e-5)


def test_vectors_that_are_not_finite_are_zero_and_marked() -> None:
    rows = np.array([[1.0, np.inf], [np.nan, 1.0], [1.0, 2.0]], np.float32)
    expected = reference.pack(rows, FP16X3)
    assert expected.risk.tolist() == [-1, -1, 0]
    assert not expected.parts[:, :2].any() and not expected.unscale[:2].any()


KERNELS = {
    "K-major, a warp each": (True, PackConfig(warps=1, fours=2), (11, 130), 3),
    "K-major, a block each": (True, PackConfig(fours=1), (2, 1101), 0),
    "K-major, aligned and not": (True, PackConfig(fours=1), (6, 993), 0),
    "K-major, shorter than a warp": (True, PackConfig(warps=1, fours=2), (9, 5), 2),
    "MN-major, one block": (False, PackConfig(cluster=1, fours=2), (37, 50), 1),
    "MN-major, two blocks": (False, PackConfig(cluster=2, fours=1), (37, 50), 2),
    "K-major, rounded down": (True, PackConfig(first="down", warps=1, fours=2), (11, 90), 2),
    "MN-major, rounded up": (False, PackConfig(first="up", cluster=1, fours=2), (37, 50), 1),
}


class Target:
    """A packed operand in the emulator's memory, checked against the reference."""

    def __init__(self, memory: DeviceImage, packed: Packed) -> None:
        self.packed = packed
        self.raw = np.full(packed.nbytes, 0x7E, np.uint8)
        self.raw[: plan.STATUS_BYTES] = 0
        self.address = memory.place(self.raw)

    def check(self, x: np.ndarray, first: str = "nearest") -> None:
        expected, packed = reference.pack(x, self.packed.scheme, first), self.packed
        parts, offset = packed.scheme.parts, packed.offsets["out"]
        out = self.raw[offset:][: 2 * parts * packed.lines * packed.pitch].view(np.uint16)
        out = out.reshape(parts, packed.lines, packed.pitch)[:, :, : packed.length]
        out = np.ascontiguousarray(out if packed.k_major else out.transpose(0, 2, 1))
        values, wanted = (
            reference.as_float32(bits, packed.scheme.dtype) for bits in (out, expected.parts)
        )
        assert np.array_equal(values, wanted)
        for name in ("unscale", "risk", "shortfall"):
            per_vector = getattr(expected, name)
            written = self.raw[packed.offsets[name] :].view(per_vector.dtype)[: packed.vectors]
            assert np.array_equal(written, per_vector)
        counted = self.raw[: plan.STATUS_BYTES].view(np.uint64)
        assert tuple(counted.tolist()) == expected.status


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.slow
def test_kernels_write_what_the_reference_says(name: str) -> None:
    k_major, config, (vectors, depth), pad = KERNELS[name]
    x = np.roll(matrix(vectors, depth), 1, axis=0)  # every fourth row is aligned, whatever the pad
    stored = np.pad(x if k_major else x.T, ((0, 0), (0, pad)), constant_values=np.nan)
    memory = DeviceImage()
    target = Target(memory, Packed(FP16X3, vectors, depth, k_major))
    operand = Operand(vectors, depth, k_major, stored.shape[1])
    (launch,) = plan.pack(operand, target.packed, memory.place(stored), target.address)
    blocks = -(-vectors * config.warps // 8) if k_major else -(-vectors // 32) * config.cluster
    cluster = 1 if k_major else config.cluster
    memory.run(replace(launch, config=config, grid=(blocks, 1, 1), cluster=cluster))
    target.check(x, config.first)


@pytest.mark.parametrize("first", ["nearest", "down"])
@pytest.mark.slow
def test_deep_kernels_write_what_the_reference_says(first: str) -> None:
    vectors, depth, chunk = 133, 70, 64
    x, memory = matrix(vectors, depth), DeviceImage()
    target = Target(memory, Packed(FP16X3, vectors, depth, False))
    at = {name: target.address + offset for name, offset in target.packed.offsets.items()}
    source, found = memory.place(np.ascontiguousarray(x.T)), np.zeros((2, 2, 256), np.int32)
    read = {"x": source, "vectors": vectors, "depth": depth, "ldx": vectors, "batch_x": 0}
    find: dict[str, Any] = {
        **read,
        "peaks": memory.place(found[0]),
        "exponents": memory.place(found[1]),
        "risk": at["risk"],
        "chunk": chunk,
    }
    results = {name: at[name] for name in ("out", "unscale", "shortfall", "status")}
    args: dict[str, Any] = {**find, **results, "pitch": target.packed.pitch}
    grid, block = (2, 2, 1), (256, 1, 1)
    memory.run(PlannedLaunch("find_peaks", PackConfig(), grid, block, find))
    memory.run(PlannedLaunch("pack_mn_major_deep", PackConfig(first=first), grid, block, args))
    target.check(x, first)
