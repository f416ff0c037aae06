"""What `gemmlab.matmul` refuses, with the rule that was broken."""

from __future__ import annotations

from typing import Any

import fake_driver
import numpy as np
import pytest
from drawn import OUT, A, B, close, numbers
from hypothesis import given
from hypothesis import strategies as st

import gemmlab
from gemmlab.errors import (
    ArrayError,
    DTypeError,
    InputError,
    ShapeError,
    TierError,
    UnknownNameError,
)
from gemmlab.linalg.shapes import overlaps_itself

READ_ONLY = np.zeros((4, 6), np.float32)
READ_ONLY.flags.writeable = False
BOTH = np.zeros(60, np.float32)
MISTAKES: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (A, numbers((4, 6)), {}, ShapeError, r"a has shape \(4, 5\) and b has shape \(4, 6\)"),
    (numbers((2, 4, 5)), numbers((3, 5, 6)), {}, ShapeError, r"stacks \(2,\) and \(3,\)"),
    (np.ones((), np.float32), B, {}, ShapeError, "a is 0-D"),
    (A.astype(float), B, {}, DTypeError, "a has dtype float64"),
    (A, B.astype(np.float16), {}, DTypeError, "b has dtype float16"),
    (A, B, {"beta": 1}, InputError, "beta = 1 without c"),
    (A, B, {"beta": float("nan")}, InputError, "beta = nan without c"),
    (A, B, {"beta": "0"}, DTypeError, "beta is '0'"),
    (A, B, {"c": OUT}, InputError, "c without beta"),
    (A, B, {"alpha": "2"}, DTypeError, "alpha is '2'"),
    (A, B, {"alpha": 1e39}, InputError, r"alpha is 1e\+39, out of the range of float32"),
    (A, B, {"c": OUT, "beta": 10**400}, InputError, "beta is 1000.*out of the range of float32"),
    (A, B, {"c": numbers((3, 6)), "beta": 1}, ShapeError, r"c has shape \(3, 6\)"),
    (A, B, {"out": np.zeros((6, 4), np.float32)}, ShapeError, r"out has shape \(6, 4\)"),
    (BOTH[:20].reshape(4, 5), B, {"out": BOTH[10:34].reshape(4, 6)}, ArrayError, "out .* and a"),
    (A, B, {"precision": "fp32"}, UnknownNameError, "no precision 'fp32'; it must be None or"),
    (A, B, {"precision": 3}, DTypeError, "precision is 3"),
]
HOST_MISTAKES: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (A.tolist(), B, {}, DTypeError, "a is a list"),
    (A, B, {"out": READ_ONLY}, ArrayError, "read-only"),
]


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "words", "on_gpu"),
    [
        *((*mistake, False) for mistake in [*MISTAKES, *HOST_MISTAKES]),
        *((*mistake, True) for mistake in MISTAKES),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_a_mistake_is_named_and_nothing_is_written(
    a: Any,
    b: Any,
    options: dict[str, Any],
    error: type[Exception],
    words: str,
    on_gpu: bool,
) -> None:
    before = [x.copy() for x in options.values() if isinstance(x, np.ndarray)]
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    if on_gpu:
        a, b = fake_driver.Array(a), fake_driver.Array(b)
        options = {k: fake_driver.Array(v) if k in arrays else v for k, v in options.items()}
    with pytest.raises(error, match=words):
        gemmlab.matmul(a, b, **options)
    assert all(np.array_equal(x, y) for x, y in zip(before, arrays.values(), strict=True))


@pytest.mark.usefixtures("gpu")
def test_arrays_in_different_places_are_refused() -> None:
    for a, b in ((A, fake_driver.Array(B)), (fake_driver.Array(A), B)):
        with pytest.raises(ArrayError, match="on the host"):
            gemmlab.matmul(a, b)
    words = r"a \(shape \(4, 5\)\) is on GPU 0 and b \(shape \(5, 6\)\) is on GPU 1"
    with pytest.raises(ArrayError, match=words):
        gemmlab.matmul(fake_driver.Array(A), fake_driver.Array(B, device=1))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (5, 1), (-5, 1), (2, 4)])
def test_out_whose_elements_share_memory_is_refused(strides: Any, on_gpu: bool) -> None:
    memory = np.zeros(60, np.float32)
    steps = tuple(4 * stride for stride in strides)
    out = np.lib.stride_tricks.as_strided(memory[20:], (4, 6), steps)
    place: Any = fake_driver.Array if on_gpu else np.asarray
    with pytest.raises(ArrayError, match="share memory"):
        gemmlab.matmul(place(A), place(B), out=place(out))
    assert not memory.any()


@given(axes=st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=4))
def test_elements_share_memory_where_offsets_are_equal(axes: list[tuple[int, int]]) -> None:
    shape, strides = (tuple(each) for each in zip(*axes, strict=True)) if axes else ((), ())
    offsets = [np.dot(index, strides) for index in np.ndindex(shape)]
    assert overlaps_itself(shape, strides) == (len(set(offsets)) < len(offsets))


@pytest.mark.parametrize("name", ["a", "b", "c", "out"])
def test_masks_are_not_dropped(name: str) -> None:
    arrays: dict[str, Any] = {"a": A, "b": B, "c": OUT, "out": OUT.copy()}
    arrays[name] = np.ma.array(arrays[name], mask=True)
    a, b = arrays.pop("a"), arrays.pop("b")
    with pytest.raises(ArrayError, match=f"{name} is a masked array of shape"):
        gemmlab.matmul(a, b, **arrays, beta=1)


def test_what_dlpack_refuses_is_named() -> None:
    class Sharded:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise BufferError("on two devices")

    class Odd:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise ValueError("odd")

    with pytest.raises(ArrayError, match=r"DLPack does not report the device of b: on two devices"):
        gemmlab.matmul(A, Sharded())
    with pytest.raises(ArrayError, match="b cannot be read through DLPack: odd"):
        gemmlab.matmul(A, Odd())


class Bare:
    """An array with only the methods that DLPack requires."""

    def __init__(self, array: np.ndarray, device: tuple[int, int]) -> None:
        self._array, self._device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


def test_arrays_that_tell_no_shape_are_named_too() -> None:
    on_host, on_gpu = Bare(B, (1, 0)), Bare(B, (2, 0))
    assert close(gemmlab.matmul(A, on_host), A, B)
    with pytest.raises(ArrayError, match=r"a \(shape \(4, 5\)\) is on the host and b is on a GPU"):
        gemmlab.matmul(A, on_gpu)
    with pytest.raises(ArrayError, match="a is on the host"):
        gemmlab.pack(on_host)
    product = gemmlab.Matmul(A, B)
    with pytest.raises(ShapeError, match="b is Bare"):
        product.reset_operands(b=on_host)
    with pytest.raises(ShapeError, match="b is ndarray of float64"):
        product.reset_operands(b=B.astype(np.float64))


def test_a_tier_on_the_host_is_refused() -> None:
    with pytest.raises(TierError, match="'fp16x3' cannot run: the arrays are on the host"):
        gemmlab.matmul(A, B, precision="fp16x3")


def test_a_product_needs_both_operands() -> None:
    with pytest.raises(DTypeError, match="b is None"):
        gemmlab.matmul(A, None)


@pytest.mark.usefixtures("gpu")
def test_an_array_without_memory_of_its_own_is_refused() -> None:
    a, b = fake_driver.Array(A), fake_driver.Array(B)
    wrappers = fake_driver.Wrapper(A), fake_driver.Wrapper(B)
    for name, pair in (("a", (wrappers[0], b)), ("b", (a, wrappers[1]))):
        with pytest.raises(ArrayError, match=f"{name} is a Wrapper"):
            gemmlab.matmul(*pair)


def test_packing_needs_a_gpu() -> None:
    with pytest.raises(ArrayError, match="on the host"):
        gemmlab.pack(A)
