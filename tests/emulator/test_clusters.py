"""Clusters: coordinates, distributed shared memory, cluster barriers, multicast."""

from __future__ import annotations

import hopper
import numpy as np
import pytest
from hopper import module
from snippets import HEADER, REGISTERS

from gemmlab import TensorMap
from gemmlab.emulator import run
from gemmlab.errors import DeadlockError, EmulationError, LaunchError, OutOfBoundsError

ORDERS = ["in-order", "reversed", 4]
SYNC = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
STORE = "add.u64 %q20, %q0, %q31; st.global.u32 [%q20], %r1;"


def test_coordinates():
    names = [
        f"%{r}.{a}"
        for r in ("ctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
        for a in "xyz"
    ]
    names += ["%cluster_ctarank", "%cluster_nctarank"]
    grid, cluster = (4, 6, 2), (2, 3, 1)
    x = np.zeros((48, len(names)), np.uint32)
    stores = " ".join(
        f"mov.u32 %r1, {n}; st.global.u32 [%q1+{4 * i}], %r1;" for i, n in enumerate(names)
    )
    body = (
        "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z;"
        f"mad.lo.u32 %r3, %r4, 6, %r3; mad.lo.u32 %r2, %r3, 4, %r2;"
        f"mad.wide.u32 %q1, %r2, {4 * len(names)}, %q0; {stores}"
    )
    run(module(["u64"], body), "k", grid, (1, 1, 1), [x], cluster=cluster)
    for place, row in zip(np.ndindex(grid[::-1]), x.tolist(), strict=True):
        block = place[::-1]
        inside = [b % c for b, c in zip(block, cluster, strict=True)]
        wanted = [*block, *(b // c for b, c in zip(block, cluster, strict=True))]
        wanted += [2, 2, 2, *inside, *cluster, inside[0] + 2 * inside[1] + 6 * inside[2], 6]
        assert row == wanted


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", ["shared::cluster", "generic"])
def test_blocks_read_each_others_shared_memory(launch, order, window):
    """Each block sends its index to the next block, over 32-bit and generic addresses."""
    x = np.zeros(8 * 32, np.uint32)
    if window == "generic":
        read = (
            "cvta.shared.u64 %q5, %q4; mapa.u64 %q5, %q5, %r5; ld.u32 %r1, [%q5];"
            "getctarank.u64 %r6, %q5; isspacep.shared::cluster %p1, %q5;"
            "@!%p1 mov.u32 %r1, 77;"
        )
    else:
        read = (
            "cvt.u32.u64 %r7, %q4; mapa.shared::cluster.u32 %r7, %r7, %r5;"
            "ld.shared::cluster.u32 %r1, [%r7]; getctarank.shared::cluster.u32 %r6, %r7;"
        )
    launch(
        ".shared .align 4 .b8 s[128]; mov.u64 %q3, s; mad.wide.u32 %q4, %r28, 4, %q3;"
        f"st.shared.u32 [%q4], %r0; {SYNC} mov.u32 %r3, %cluster_ctarank; add.u32 %r5, %r3, 1;"
        f"and.b32 %r5, %r5, 3; {read} mad.lo.u32 %r1, %r6, 1000, %r1; {STORE} {SYNC}",
        [x],
        grid=8,
        order=order,
        cluster=4,
    )
    rank, lane = np.arange(8)[:, None], np.arange(32)[None, :]
    neighbour = (rank + 1) % 4
    wanted = (rank // 4 * 4 + neighbour) * 32 + lane + 1000 * neighbour
    np.testing.assert_array_equal(x.reshape(8, 32), wanted)


@pytest.mark.parametrize("order", ORDERS)
def test_remote_stores_atomics_and_arrivals(launch, order):
    """All blocks of a cluster add to a counter of rank 0, which waits for their arrivals."""
    x = np.zeros(4, np.uint32)
    launch(
        ".shared .align 8 .b64 m; .shared .align 4 .b32 sum; mov.u32 %r2, m; mov.u32 %r3, sum;"
        "mov.u32 %r4, 0; mapa.shared::cluster.u32 %r5, %r2, %r4; mapa.shared::cluster.u32 %r6, %r3,"
        "%r4; setp.ne.u32 %p1, %r28, 0; @!%p1 mbarrier.init.shared::cta.b64 [m], 64;"
        f"st.shared.u32 [sum], 0; fence.mbarrier_init.release.cluster; {SYNC}"
        "red.relaxed.cluster.shared::cluster.add.u32 [%r6], 1;"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];"
        "mov.u32 %r7, %cluster_ctarank; setp.ne.u32 %p2, %r7, 0; @%p2 bra OUT;"
        "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [m], 0; @!%p3 bra W;"
        "ld.shared.u32 %r1, [sum]; mul.wide.u32 %q1, %r30, 4; add.u64 %q2, %q0, %q1;"
        f"@!%p1 st.global.u32 [%q2], %r1; OUT: {SYNC}",
        [x],
        grid=4,
        order=order,
        cluster=2,
    )
    assert x.tolist() == [64, 0, 64, 0]


@pytest.mark.parametrize("order", ORDERS)
def test_multicast(order):
    """Two blocks load half a box each, and both receive both halves."""
    array = np.arange(32 * 64, dtype=np.uint16).reshape(32, 64)
    nbytes, half = 16 * 128, 8 * 128
    body = "\n".join(
        [
            "mov.u32 %r1, %cluster_ctarank; mov.u32 %r9, %ctaid.x; setp.ne.u32 %p1, %r0, 0;",
            "@%p1 bra READY; mbarrier.init.shared.b64 [m], 1;",
            f"mbarrier.arrive.expect_tx.shared.b64 _, [m], {nbytes}; READY: {SYNC}",
            f"@%p1 bra WAIT; mov.u32 %r3, s; mad.lo.u32 %r3, %r1, {half}, %r3; mov.b32 %r10, 0;",
            "shl.b32 %r11, %r9, 3; mov.b16 %h0, 3;",
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%r3], [%q0, {%r10, %r11}], [m], %h0;",
            hopper.WAIT,
            f"mad.wide.u32 %q1, %r9, {nbytes}, %q1;",
            hopper.each_word(
                nbytes,
                32,
                "add.u64 %q9, %q1, %q8; ld.shared.u32 %r4, [%r3]; st.global.u32 [%q9], %r4;",
                "STORE",
            ),
            SYNC,
        ]
    )
    text = module(["map", "u64"], body, ".shared .align 8 .b64 m;" + hopper.DYNAMIC)
    out = np.zeros((4, nbytes // 4), np.uint32)
    tensor_map = TensorMap(array, (8, 64))
    counters = run(
        text, "k", (4, 1, 1), (32, 1, 1), [tensor_map, out], nbytes, order, (2, 1, 1)
    ).counters
    for block in range(4):
        half_box = array.reshape(2, 16, 64)[block // 2]
        np.testing.assert_array_equal(out[block].view(np.uint16).reshape(16, 64), half_box)
    received = counters["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"]
    assert received == 4 * nbytes


def test_bytes_from_block_to_block(launch):
    """A copy from shared memory to another block's signals the other block's mbarrier."""
    x = np.zeros(2 * 32, np.uint32)
    launch(
        ".shared .align 16 .b8 a[128]; .shared .align 16 .b8 b[128]; .shared .align 8 .b64 m;"
        "mov.u32 %r2, a; mov.u32 %r3, b; mov.u32 %r4, m; mad.lo.u32 %r5, %r28, 4, %r2;"
        "st.shared.u32 [%r5], %r0; setp.ne.u32 %p1, %r28, 0; @%p1 bra R;"
        "mbarrier.init.shared.b64 [m], 1; mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;"
        f"R: fence.proxy.async.shared::cta; {SYNC} @%p1 bra W; mov.u32 %r6, %cluster_ctarank;"
        "xor.b32 %r6, %r6, 1; mapa.shared::cluster.u32 %r7, %r3, %r6;"
        "mapa.shared::cluster.u32 %r8, %r4, %r6;"
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
        " [%r7], [%r2], 128, [%r8];"
        "W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;"
        f"mad.lo.u32 %r9, %r28, 4, %r3; ld.shared.u32 %r1, [%r9]; {STORE} {SYNC}",
        [x],
        grid=2,
        cluster=2,
    )
    assert x.tolist() == [*range(32, 64), *range(32)]


ASYNC = ".shared::cluster.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize("vector", ["", ".v2", ".v4"])
def test_registers_are_sent_to_another_block(launch, vector):
    count = int(vector[2:] or 1)
    words = ", ".join(["%r0", "%r28", "%r5", "7"][:count])
    x = np.zeros((2 * 32, 4), np.uint32)
    launch(
        ".shared .align 16 .b8 b[512]; .shared .align 8 .b64 m; mov.u32 %r3, b; mov.u32 %r4, m;"
        f"mad.lo.u32 %r9, %r28, {4 * count}, %r3; setp.ne.u32 %p1, %r28, 0; @%p1 bra R;"
        f"mbarrier.init.shared.b64 [m], 1;"
        f"mbarrier.arrive.expect_tx.shared.b64 _, [m], {128 * count};"
        f"R: {SYNC} mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1; mov.u32 %r5, 9;"
        "mapa.shared::cluster.u32 %r7, %r9, %r6; mapa.shared::cluster.u32 %r8, %r4, %r6;"
        f"st.async.weak{ASYNC}{vector}.u32 [%r7], {{{words}}}, [%r8];"
        "W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;"
        "mul.wide.u32 %q5, %r0, 16; add.u64 %q5, %q0, %q5;"
        + "".join(
            f"ld.shared.u32 %r1, [%r9+{4 * k}]; st.global.u32 [%q5+{4 * k}], %r1;"
            for k in range(count)
        )
        + SYNC,
        [x],
        grid=2,
        cluster=2,
    )
    thread = np.arange(64)
    sent = np.stack([(thread + 32) % 64, thread % 32, 0 * thread + 9, 0 * thread + 7], axis=1)
    sent[:, count:] = 0
    assert np.array_equal(x, sent)


@pytest.mark.parametrize(("op", "type_", "wanted"), [("add", "u32", 496), ("max", "s32", 31)])
def test_registers_are_added_to_another_blocks_memory(launch, op, type_, wanted):
    x = np.zeros(2 * 32, np.uint32)
    launch(
        ".shared .align 4 .b8 b[4]; .shared .align 8 .b64 m; mov.u32 %r3, b; mov.u32 %r4, m;"
        "setp.ne.u32 %p1, %r28, 0; @%p1 bra R; st.shared.u32 [b], 0;"
        "mbarrier.init.shared.b64 [m], 1; mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;"
        f"R: {SYNC} mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1;"
        "mapa.shared::cluster.u32 %r7, %r3, %r6; mapa.shared::cluster.u32 %r8, %r4, %r6;"
        f"red.async.relaxed.cluster{ASYNC}.{op}.{type_} [%r7], %r28, [%r8];"
        "W: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra W;"
        f"ld.shared.u32 %r1, [b]; {STORE} {SYNC}",
        [x],
        grid=2,
        cluster=2,
    )
    assert (x == wanted).all()


def test_the_barrier_of_a_cluster_waits_for_all_its_blocks(launch):
    with pytest.raises(DeadlockError, match="32 threads wait for their cluster \\(32 of 64") as e:
        launch(
            "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 bra B;"
            "barrier.cluster.arrive; barrier.cluster.wait; ret; B: bar.sync 1, 64;",
            grid=4,
            cluster=2,
        )
    assert "barrier.cluster.wait" in str(e.value)


def test_threads_that_have_ended_are_not_waited_for(launch):
    x = np.ones(64, np.uint32)
    launch(
        f"setp.lt.u32 %p1, %r28, 16; @%p1 ret; {SYNC} mov.u32 %r1, 5; {STORE}",
        [x],
        grid=2,
        cluster=2,
    )
    assert x.tolist() == ([1] * 16 + [5] * 16) * 2


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("barrier.cluster.arrive; barrier.cluster.arrive;", EmulationError, "arrives twice"),
        ("barrier.cluster.wait;", EmulationError, "without having arrived"),
        (
            ".shared .align 4 .b32 s; mov.u32 %r1, s; mov.u32 %r2, 2;"
            "mapa.shared::cluster.u32 %r1, %r1, %r2; ld.shared::cluster.u32 %r3, [%r1];",
            OutOfBoundsError,
            "past the end of a cluster of 2",
        ),
    ],
)
def test_misuse(launch, body, error, message):
    with pytest.raises(error, match=message):
        launch(body, grid=2, cluster=2)


def test_the_shape_of_clusters_is_checked():
    compiled = f"{HEADER}.visible .entry k()\n.reqnctapercluster 2, 1, 1\n{{\n{REGISTERS} ret; }}\n"
    run(compiled, "k", (4, 1, 1), (32, 1, 1), [])
    with pytest.raises(LaunchError, match="\\(2, 1, 1\\) does not divide the grid \\(3, 1, 1\\)"):
        run(compiled, "k", (3, 1, 1), (32, 1, 1), [])
    with pytest.raises(LaunchError, match=r".reqnctapercluster is \(2, 1, 1\)"):
        run(compiled, "k", (4, 1, 1), (32, 1, 1), [], cluster=(4, 1, 1))
    with pytest.raises(LaunchError, match="1 to 16 blocks"):
        run(module([], ""), "k", (32, 1, 1), (32, 1, 1), [], cluster=(32, 1, 1))
