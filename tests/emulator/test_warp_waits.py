"""Lanes of a warp wait for the lanes that a collective names, wherever these execute it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import needs_native

import gemmlab
from gemmlab.errors import DeadlockError, TierError

CUDA = """
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__ void
KERNEL tiles(int* o) {  // lanes of two tiles run together, each with its own mask
    int t = threadIdx.x;
    unsigned m = t % 32 < 16 ? 0xffffu : 0xffff0000u;
    int all = __all_sync(m, t % 32 < 16), any = __any_sync(m, t % 32 == 3);
    int odd = __popc(__ballot_sync(m, t & 1)), same = __popc(__match_any_sync(m, 7));
    int pred, agree = __popc(__match_all_sync(m, t / 16, &pred));
    o[t] = all + 2 * any + 4 * pred + 100 * odd + 10000 * same + 1000000 * agree;
    o[t] += 100000000 * (__reduce_add_sync(m, 1) / 16 + __reduce_max_sync(m, t % 32) / 16);
}
KERNEL both_sides(int* o) {  // the same shuffle in both branches of an `if`
    int t = threadIdx.x, v = t * t;
    if (t % 32 < 16) o[t] = __shfl_xor_sync(FULL, v + 1, 16);
    else o[t] = 2 * __shfl_xor_sync(FULL, v + 2, 16);
}
KERNEL votes(int* o) {
    int t = threadIdx.x;
    if (t % 32 < 16) o[t] = __ballot_sync(FULL, t & 1);
    else o[t] = ~__ballot_sync(FULL, t & 2);
}
KERNEL meet_and_write(int* o) {  // each half reads what the other wrote
    __shared__ int s[96];
    int t = threadIdx.x;
    if (t % 32 < 16) {
        s[t] = t;
        __syncwarp();
        o[t] = s[t ^ 16];
    } else {
        s[t] = 3 * t;
        __syncwarp();
        o[t] = s[t ^ 16] + 1000;
    }
}
KERNEL when_others_have_exited(int* o) {
    __shared__ volatile int flag;
    int t = threadIdx.x;
    flag = 0;
    __syncthreads();
    if (t < 8) {
        o[t] += __ballot_sync(FULL, t & 1);  // once
    } else if (t < 16) {
        o[t] += ~__ballot_sync(FULL, t & 2);
    } else if (t < 32) {
        while (!flag) __nanosleep(20);
    } else {
        for (int i = 0; i < 9; i++) o[t] = i;
        flag = 1;
    }
}
KERNEL exits(int* o) {
    int t = threadIdx.x;
    if (t % 32 >= 20) return;
    o[t] = __ballot_sync(FULL, 1);
}
KERNEL shuffle_or_barrier(int* o) {
    int t = threadIdx.x;
    if (t % 32 < 16) o[t] = __shfl_down_sync(FULL, t, 1);
    __syncthreads();
}
KERNEL shuffle_or_vote(int* o) {
    int t = threadIdx.x;
    if (t % 32 < 16) o[t] = __shfl_down_sync(FULL, t, 1);
    else o[t] = __any_sync(FULL, t);
}
KERNEL other_masks(int* o) {
    int t = threadIdx.x;
    if (t % 32 < 16) __syncwarp(); else __syncwarp(0xffff8000u);
    o[t] = 1;
}
KERNEL others_spin(int* o) {  // until warp 0 continues
    int t = threadIdx.x;
    volatile int* flag = o;
    if (t == 0) __syncwarp();
    if (t >= 32) while (*flag == 0) {}
    if (t > 0) __syncthreads();
}
"""
ORDERS = ("in-order", "reversed", 0)
T = np.arange(96)
HALF = T % 32 < 16


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    path: Path = tmp_path_factory.mktemp("cuda") / "warps.cu"
    path.write_text(CUDA)
    return lambda entry: gemmlab.load(path, entry=entry)


def emulate(kernel: Any, **how: Any) -> np.ndarray:
    o = np.zeros(96, np.int32)
    gemmlab.emulate(kernel, grid=1, block=96, args=[o], **how)
    return o


RESULTS = {
    "tiles": np.where(HALF, 116160807, 216160804),
    "both_sides": np.where(HALF, (T ^ 16) ** 2 + 2, 2 * ((T ^ 16) ** 2 + 1)),
    "votes": np.where(HALF, 0xCCCCAAAA - (1 << 32), ~(0xCCCCAAAA - (1 << 32))),
    "meet_and_write": np.where(HALF, 3 * (T ^ 16), (T ^ 16) + 1000),
    "when_others_have_exited": np.select([T < 8, T < 16, T < 32], [0xCCAA, ~0xCCAA, 0], 8),
    "exits": np.where(T % 32 < 20, 0xFFFFF, 0),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", RESULTS)
def test_collectives(cuda: Callable[[str], Any], name: str, order: str | int) -> None:
    np.testing.assert_array_equal(emulate(cuda(name), order=order, tier="numpy"), RESULTS[name])


@needs_native
@pytest.mark.parametrize("name", RESULTS)
def test_collectives_natively(cuda: Callable[[str], Any], name: str) -> None:
    """Lanes that meet at different instructions do so on the NumPy tier only."""
    if name in ("tiles", "exits"):
        result = emulate(cuda(name), tier="native")
    else:
        with pytest.raises(TierError, match="lanes of a warp wait for each other at different"):
            emulate(cuda(name), tier="native")
        result = emulate(cuda(name))
    np.testing.assert_array_equal(result, RESULTS[name])


HANGS = {
    "shuffle_or_barrier": "lanes 0 to 15 wait for lanes 16 to 31, with mask 0xffffffff, warps.cu",
    "shuffle_or_vote": "vote.sync.any.pred, warp 0, 1, 2: lanes 16 to 31 wait for lanes 0 to 15",
    "other_masks": "lanes 16 to 31 wait for lane 15, with mask 0xffff8000",
    "others_spin": "spins on argument 0|lane 0 waits for lanes 1 to 31",
}


@pytest.mark.parametrize("tier", ["numpy", pytest.param("native", marks=needs_native)])
@pytest.mark.parametrize("name", HANGS)
def test_lanes_that_never_come(cuda: Callable[[str], Any], name: str, tier: str) -> None:
    with pytest.raises(DeadlockError, match=HANGS[name]):
        emulate(cuda(name), tier=tier)


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("name", HANGS)
def test_lanes_that_never_come_in_other_orders(
    cuda: Callable[[str], Any], name: str, order: str | int
) -> None:
    with pytest.raises(DeadlockError, match=HANGS[name]):
        emulate(cuda(name), order=order)
