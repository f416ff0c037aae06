"""Products of host arrays in blocks, on devices that are CPUs in place of GPUs."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import gemmlab.distributed as gd  # noqa: E402
from gemmlab.distributed import streaming  # noqa: E402
from gemmlab.errors import (  # noqa: E402
    ArrayError,
    DeviceError,
    DTypeError,
    InputError,
    ShapeError,
    UnknownNameError,
)

MEMORY = 400_000  # bytes: less than any of the arrays


def pair(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(m)
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


def close(found, a, b) -> None:
    np.testing.assert_allclose(found, a.astype(float) @ b.astype(float), rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", [(700, 500, 60), (300, 900, 50), (1, 7, 3), (0, 5, 4), (5, 3, 0)])
@pytest.mark.parametrize("count", [1, 3])
def test_arrays_larger_than_all_devices(shape, count):
    a, b = pair(*shape)
    fractions: list[float] = []
    found = gd.matmul(
        a, b, devices=["cpu"] * count, memory=MEMORY, alpha=2, progress=fractions.append
    )
    assert type(found) is np.ndarray
    close(found / 2, a, b)
    assert fractions == sorted(fractions) and (not found.size or fractions[-1] == 1)
    if min(shape) > 100:
        assert len(fractions) > 2 * count


def test_into_a_file_and_from_views(tmp_path):
    a, b = pair(260, 130, 40)
    a.setflags(write=False)
    out = np.lib.format.open_memmap(tmp_path / "c.npy", "w+", np.float32, (260, 65))
    out[:] = np.nan
    assert gd.matmul(a, b[:, ::2], devices=["cpu"], memory=MEMORY, out=out) is out
    close(np.load(tmp_path / "c.npy"), a, b[:, ::2])


def test_a_sharded_result_stays_on_the_devices():
    a, b = map(torch.from_numpy, pair(130, 900, 40))
    shards = gd.matmul(a, b, devices=["cpu", "cpu"], memory=1 << 20, sharded=True)
    assert [len(shard) for shard in shards] == [65, 65]
    close(torch.cat(shards), a.numpy(), b.numpy())


def test_blocks_fit():
    for rows, n, k, memory in ((5000, 4000, 300, 1 << 22), (10**6, 10**6, 10**5, 10**11)):
        tiling = streaming.tile(rows, n, k, memory)
        columns, block = tiling.columns, tiling.rows
        assert 4 * (2 * columns * k + 3 * block * k + 2 * block * columns) <= memory
        assert block >= 128 and columns >= 1
    with pytest.raises(ShapeError, match=r"blocks of 128 rows with k = 1000000 need 2,560,"):
        streaming.tile(1000, 1000, 10**6, 1 << 20)


def test_what_a_device_raises_is_raised():
    a, b = pair(300, 200, 2000)
    with pytest.raises(ShapeError, match="rows with k = 2000 need"):
        gd.matmul(a, b, devices=["cpu", "cpu"], memory=1000)


A, B = pair(4, 5, 3)


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (InputError, "devices is empty", {"devices": []}),
        (DeviceError, "no device 'tpu'", {"devices": ["tpu"]}),
        (DeviceError, "no device 99", {"devices": [99]}),
        (DeviceError, "only GPUs", {"devices": ["meta"]}),
        (InputError, "omit devices", {"out_placements": []}),
        (InputError, "not both", {"sharded": True, "out": np.empty((4, 5), np.float32)}),
        (InputError, "give devices", {"devices": None, "sharded": True}),
        (ShapeError, "out has shape", {"out": np.empty((5, 4), np.float32)}),
        (UnknownNameError, "no precision", {"precision": "x"}),
    ],
)
def test_wrong_options(error, words, options):
    with pytest.raises(error, match=words):
        gd.matmul(A, B, **{"devices": ["cpu"], **options})


@pytest.mark.parametrize(
    ("error", "words", "a", "b"),
    [
        (ShapeError, "do not meet", A, A),
        (ShapeError, "must be a matrix", A[0], B),
        (DTypeError, "float64", A.astype(float), B),
        (DTypeError, "float64", torch.ones(4, 3, dtype=torch.float64), B),
        (ArrayError, "an array on the host", [[1.0]], B),
        (ArrayError, "strides", A[::-1], B),
        (ArrayError, "no derivative", torch.ones(4, 3, requires_grad=True), B),
    ],
)
def test_wrong_arrays(error, words, a, b):
    with pytest.raises(error, match=words):
        gd.matmul(a, b, devices=["cpu"])
