"""cp.async: which bytes arrive, when, and which forms are errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import TIERS, without_native_tier
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.errors import (
    EmulationError,
    MisalignedAddressError,
    OutOfBoundsError,
    UnsupportedInstructionError,
)


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


# %q0 source, %q1 result, %q31 four times the thread's index; %r1 its 32 bytes of shared memory
SETUP = (
    ".shared .align 32 .b8 tile[4096]; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 32, %r1;"
    "mad.wide.u32 %q2, %r0, 32, %q0; add.u64 %q3, %q1, %q31;"
    "st.shared.u32 [%r1], -1; st.shared.u32 [%r1+4], -1; bar.sync 0;"
)
COPY = "cp.async.ca.shared.global [%r1], [%q2], 4"
SHOW = "ld.shared.u32 %r2, [%r1]; st.global.u32 [%q3], %r2;"


def words(count: int) -> np.ndarray:
    return np.arange(1, 1 + 8 * count, dtype=np.uint32)


@pytest.mark.parametrize(
    ("code", "arrives"),
    [
        (f"{COPY}; cp.async.wait_all;", True),
        (f"{COPY}; cp.async.commit_group; cp.async.wait_group 0;", True),
        (f"{COPY}; cp.async.commit_group; cp.async.commit_group; cp.async.wait_group 1;", True),
        (f"{COPY};", False),
        (f"{COPY}; bar.sync 0;", False),
        (f"{COPY}; cp.async.commit_group;", False),
        (f"{COPY}; cp.async.commit_group; cp.async.wait_group 1;", False),
        (f"{COPY}; cp.async.wait_group 0;", False),  # not in any group
        (f"cp.async.commit_group; {COPY}; cp.async.wait_group 0;", False),
        (f"setp.lt.u32 %p1, %r0, 0; @%p1 {COPY}; cp.async.wait_all;", False),
    ],
)
@pytest.mark.parametrize("block", [32, 45])
@pytest.mark.slow
def test_bytes_arrive_at_the_wait_for_their_group(launch, code, arrives, block):
    source, result = words(block), np.zeros(block, np.uint32)
    launch(SETUP + code + SHOW, [source, result], block=block)
    wanted = source[::8] if arrives else np.full(block, 2**32 - 1, np.uint32)
    np.testing.assert_array_equal(result, wanted)


def test_each_thread_waits_for_its_own_copies(launch):
    source, result = words(64), np.zeros(64, np.uint32)
    code = f"setp.lt.u32 %p1, %r0, 40; {COPY}; cp.async.commit_group; @%p1 cp.async.wait_group 0;"
    launch(SETUP + code + SHOW, [source, result], block=64)
    np.testing.assert_array_equal(result, np.where(np.arange(64) < 40, source[::8], 2**32 - 1))


def test_a_copy_reads_when_it_is_issued(launch):
    source, result = words(32), np.zeros(32, np.uint32)
    code = f"{COPY}; st.global.u32 [%q2], 0; cp.async.wait_all;"
    launch(SETUP + code + SHOW, [source, result])
    np.testing.assert_array_equal(result, words(32)[::8])


@pytest.mark.parametrize("level", ["ca", "cg"])
@pytest.mark.parametrize("target", ["shared", "shared::cta"])
@pytest.mark.parametrize("hint", ["", ".L2::128B", ".L2::cache_hint", ".L2::cache_hint.L2::64B"])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_every_form_copies(launch, level, target, hint, size):
    source, result = words(32), np.zeros(256, np.uint32)
    policy = ", %q9" if "cache_hint" in hint else ""
    code = f"cp.async.{level}.{target}.global{hint} [%r1], [%q2], {size}{policy};"
    code += "cp.async.wait_all; mad.wide.u32 %q3, %r0, 32, %q1;"
    for k in range(4):
        code += f"ld.shared.u32 %r2, [%r1+{4 * k}]; st.global.u32 [%q3+{4 * k}], %r2;"
    if level == "cg" and size < 16:
        with pytest.raises(UnsupportedInstructionError, match="unknown combination"):
            launch(SETUP + code, [source, result])
        return
    launch(SETUP + code, [source, result])
    copied = result.view(np.uint8).reshape(32, 32)[:, :size]
    np.testing.assert_array_equal(copied, source.view(np.uint8).reshape(32, 32)[:, :size])


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("block", [32, 20])
def test_what_the_source_lacks_is_zeros(launch, size, block):
    source, result = words(block), np.zeros(8 * block, np.uint32)
    code = f"rem.u32 %r3, %r0, {size + 1};"
    code += f"cp.async.ca.shared.global [%r1], [%q2], {size}, %r3; cp.async.wait_all;"
    code += "mad.wide.u32 %q3, %r0, 32, %q1; ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1];"
    code += "st.global.v4.u32 [%q3], {%r2, %r3, %r4, %r5};"
    launch(SETUP + code, [source, result], block=block)
    lane, byte = np.arange(block)[:, None], np.arange(size)
    wanted = np.where(byte < lane % (size + 1), source.view("u1").reshape(-1, 32)[:, :size], 0)
    np.testing.assert_array_equal(result.view(np.uint8).reshape(-1, 32)[:, :size], wanted)


@pytest.mark.parametrize("predicate", ["%p1", "%p2"])
def test_an_ignored_source_is_zeros(launch, predicate):
    source, result = words(32), np.zeros(32, np.uint32)
    code = "setp.lt.u32 %p1, %r0, 7; setp.lt.u32 %p2, %r0, 0;"
    launch(SETUP + f"{code}{COPY}, {predicate}; cp.async.wait_all;" + SHOW, [source, result])
    ignored = np.arange(32) < (7 if predicate == "%p1" else 0)
    np.testing.assert_array_equal(result, np.where(ignored, 0, source[::8]))


def test_nobody_asks_whether_bytes_exist_that_are_not_read(launch):
    source, result = words(32), np.zeros(32, np.uint32)
    beyond = "add.u64 %q2, %q2, 1022; mov.u32 %r3, 0;"
    launch(SETUP + beyond + f"{COPY}, %r3; cp.async.wait_all;" + SHOW, [source, result])
    np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("add.u64 %q2, %q2, 1024;" + COPY, OutOfBoundsError, "4 bytes past the end of argument 0"),
        ("add.u64 %q2, %q2, 4;" + COPY.replace("4", "8"), MisalignedAddressError, "width, 8"),
        ("add.u32 %r1, %r1, 2;" + COPY, MisalignedAddressError, "access width, 4 bytes"),
        ("add.u32 %r1, %r1, 3104;" + COPY, OutOfBoundsError, "has 4096 bytes of shared"),
        ("mov.u32 %r3, 5;" + COPY + ", %r3", EmulationError, "exceeds the copy size of 4 bytes"),
        ("add.u64 %q2, %q2, 996;" + COPY + ", 3", OutOfBoundsError, "access of 3 bytes"),
        ("add.u64 %q2, %q2, 2;" + COPY + ", 3", MisalignedAddressError, "access width, 4 bytes"),
    ],
)
def test_wrong_addresses_and_sizes(launch, code, error, message):
    with pytest.raises(error, match=message) as caught:
        launch(SETUP + code + ";", [words(32), np.zeros(32, np.uint32)])
    assert "cp.async" in str(caught.value)


@pytest.mark.parametrize(
    "code", ["cp.async.wait_group %r1;", "cp.async.ca.global [%q0], [%q1], 4;"]
)
def test_forms_that_do_not_exist(launch, code):
    with pytest.raises(UnsupportedInstructionError, match=r"cp\.async"):
        launch(code, [words(32), np.zeros(32, np.uint32)])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(["copy", "commit", "wait 0", "wait 1", "wait 2", "all"]), max_size=14)
)
@pytest.mark.slow
def test_any_order_of_copies_and_waits(steps):
    """Compare with a list of groups. The n-th copy stores the number n + 1 to the n-th word."""
    source, result = words(2), np.zeros(16, np.uint32)
    code = [".shared .align 4 .b32 tile[16];", "ld.param.u64 %q0, [p0]; ld.param.u64 %q1, [p1];"]
    groups: list[list[int]] = []
    arrived, open_, count = [0] * 16, list[int](), 0
    for step in steps:
        if step == "copy":
            code.append(f"cp.async.ca.shared.global [tile+{4 * count}], [%q0+{4 * count}], 4;")
            open_.append(count)
            count += 1
            continue
        if step in ("commit", "all"):
            groups, open_ = [*groups, open_], []
        code.append(
            {"commit": "cp.async.commit_group;", "all": "cp.async.wait_all;"}.get(
                step, f"cp.async.wait_group {step[-1]};"
            )
        )
        if step != "commit":
            most = 0 if step == "all" else int(step[-1])
            for n in (n for group in groups[: len(groups) - most] for n in group):
                arrived[n] = n + 1
    for k in range(16):
        code.append(f"ld.shared.u32 %r1, [tile+{4 * k}]; st.global.u32 [%q1+{4 * k}], %r1;")
    text = ptx("\n".join([*code, "ret;"]), ["u64", "u64"])
    for tier in ("numpy", "native") if not without_native_tier() else ("numpy",):
        result[:] = 0
        run(text, "k", (1, 1, 1), (1, 1, 1), [source, result], tier=tier)
        assert result.tolist() == arrived
