"""Bulk copies of plain bytes: groups, mbarriers, and when bytes arrive."""

from __future__ import annotations

import numpy as np
import pytest

from gemmlab.errors import EmulationError, MisalignedAddressError, OutOfBoundsError

ORDERS = ["in-order", "reversed", 3]
# Thread 0 initializes m for one arrival and joins the others at ALL.
SETUP = (
    ".shared .align 16 .b8 s[1024]; .shared .align 8 .b64 m; mov.u32 %r10, s;"
    "mad.lo.u32 %r11, %r28, 4, %r10; setp.ne.u32 %p1, %r28, 0;"
    "@!%p1 mbarrier.init.shared.b64 [m], 1; bar.sync 0;"
)
LOAD = (
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
    " [%r10+16], [%q0+32], %r12, [m], %q9;"
)
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;"
STORE = "add.u64 %q20, %q1, %q31; st.global.u32 [%q20], %r1;"


@pytest.mark.parametrize("order", ORDERS)
def test_load(launch, order):
    x, y = np.arange(256, dtype=np.uint32), np.zeros(64, np.uint32)
    launch(
        f"{SETUP} createpolicy.fractional.L2::evict_first.b64 %q9, 1.0; mov.u32 %r12, 240;"
        f"@%p1 bra W; mbarrier.arrive.expect_tx.shared.b64 _, [m], %r12; {LOAD} {WAIT}"
        f"ld.shared.u32 %r1, [%r11]; {STORE}",
        [x, y],
        block=64,
        order=order,
    )
    assert y.tolist() == [0] * 4 + list(range(8, 68))


@pytest.mark.parametrize(("order", "seen"), [("in-order", 0), ("reversed", 8)])
def test_who_does_not_wait_sees_bytes_early_or_late(launch, order, seen):
    x, y = np.arange(256, dtype=np.uint32), np.zeros(64, np.uint32)
    launch(
        f"{SETUP} mov.u32 %r12, 240; mov.u64 %q9, 0; @%p1 bra W;"
        f"mbarrier.arrive.expect_tx.shared.b64 _, [m], %r12; {LOAD} bra NEXT; NEXT:"
        f"ld.shared.u32 %r1, [%r10+16]; st.global.u32 [%q1], %r1; {WAIT}",
        [x, y],
        block=64,
        order=order,
    )
    assert y[0] == seen


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("read", ["", ".read"])
def test_store_groups(launch, order, read):
    """Three copies from one buffer. Each has read it before the next contents are written."""
    x = np.zeros(96, np.uint32)
    body = "".join(
        f"add.u32 %r1, %r28, {100 * k}; st.shared.u32 [%r11], %r1;"
        "fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra"
        f" N{k}; cp.async.bulk.global.shared::cta.bulk_group [%q0+{128 * k}], [%r10], 128;"
        f"cp.async.bulk.commit_group; cp.async.bulk.wait_group{read} 0; N{k}: bar.sync 0;"
        for k in range(3)
    )
    launch(SETUP + body, [x], order=order)
    assert x.reshape(3, 32).tolist() == [[100 * k + i for i in range(32)] for k in range(3)]


def test_a_group_that_nobody_waits_for_reads_late(launch):
    """The second of two copies may read the final contents of the buffer."""
    x = np.zeros(8, np.uint32)
    launch(
        f"{SETUP} @%p1 ret; st.shared.u32 [%r10], 1;"
        "cp.async.bulk.global.shared::cta.bulk_group [%q0], [%r10], 16;"
        "cp.async.bulk.commit_group; st.shared.u32 [%r10+16], 2;"
        "cp.async.bulk.global.shared::cta.bulk_group [%q0+16], [%r10+16], 16;"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;"
        "st.shared.u32 [%r10], 3; st.shared.u32 [%r10+16], 4;",
        [x],
    )
    assert (x[0], x[4]) == (1, 4)


def test_reductions_count_every_lane_and_stores_only_one(launch):
    x = np.zeros(8, np.uint32)
    launch(
        f"{SETUP} st.shared.u32 [%r10], 1; fence.proxy.async.shared::cta;"
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%q0], [%r10], 16;"
        "cp.async.bulk.global.shared::cta.bulk_group [%q0+16], [%r10], 16;"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        [x],
    )
    assert (x[0], x[4]) == (32, 1)


@pytest.mark.parametrize(
    ("type_", "dtype", "operation", "function"),
    [
        ("f16", np.float16, "add.noftz", np.add),
        ("f16", np.float16, "min", np.minimum),
        ("f32", np.float32, "add", np.add),
        ("f64", np.float64, "add", np.add),
        ("s32", np.int32, "max", np.maximum),
        ("u64", np.uint64, "add", np.add),
        ("b64", np.uint64, "xor", np.bitwise_xor),
    ],
)
def test_reductions(launch, type_, dtype, operation, function):
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(64 // np.dtype(dtype).itemsize) * 50 for _ in range(2))
    x, y = (
        x.astype(dtype if np.dtype(dtype).kind != "u" else np.int64).astype(dtype),
        y.astype(np.int64).astype(dtype),
    )
    wanted = function(x, y)
    launch(
        f"{SETUP} setp.ge.u32 %p2, %r28, 16; @%p2 ret; add.u64 %q5, %q1, %q31;"
        "ld.global.u32 %r1, [%q5]; st.shared.u32 [%r11], %r1; bar.warp.sync 0xFFFF; @%p1 ret;"
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{type_} [%q0], [%r10], 64;"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        [x, y],
    )
    np.testing.assert_array_equal(x, wanted)


def test_prefetches_do_nothing(launch):
    launch(
        "cp.async.bulk.prefetch.L2.global [%q0], 64;"
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%q0, {%r0, %r0}];"
        "prefetch.tensormap [%q0]; fence.proxy.tensormap::generic.acquire.gpu [%q0], 128;"
        " griddepcontrol.wait; griddepcontrol.launch_dependents;"
        "setmaxnreg.dec.sync.aligned.u32 40; fence.proxy.alias; discard.global.L2 [%q0], 128;",
        [np.zeros(16, np.uint32)],
    )


@pytest.mark.parametrize(
    ("target", "source", "size", "error", "message"),
    [
        ("%r10+8", "%q0", 16, MisalignedAddressError, "not multiples of 16"),
        ("%r10", "%q0", 24, MisalignedAddressError, "not multiples of 16"),
        ("%r10", "%q0+1008", 32, OutOfBoundsError, "16 bytes past the end of argument 0"),
        ("%r10+1008", "%q0", 32, OutOfBoundsError, "32 bytes at shared address 0x3f0"),
    ],
)
def test_faults(launch, target, source, size, error, message):
    load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    with pytest.raises(error, match=message) as caught:
        launch(
            f"{SETUP} @%p1 ret; {load} [{target}], [{source}], {size}, [m];",
            [np.zeros(256, np.uint32)],
        )
    assert caught.value.thread == 0


def test_an_mbarrier_that_is_none(launch):
    with pytest.raises(EmulationError, match="no mbarrier was initialized"):
        launch(
            ".shared .align 16 .b8 s[64]; .shared .align 8 .b64 m; mov.u32 %r10, s;"
            "setp.ne.u32 %p1, %r28, 0; @%p1 ret;"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%r10], [%q0], 16, [m];",
            [np.zeros(4, np.uint32)],
        )
