"""malloc and free in device code. The heap lasts for one launch."""

from __future__ import annotations

import numpy as np
import pytest
from machine import TIERS
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.emulator.memory.heap import HEAP_BYTES
from gemmlab.errors import EmulationError, OutOfBoundsError

MODULE = (
    ".extern .func (.param .b64 r) malloc(.param .b64 a); .extern .func free(.param .b64 a);"
    ".func (.param .b64 r) new(.param .b64 a) { .reg .b64 %q<4>; ld.param.u64 %q1, [a];"
    "{ .param .b64 a0; .param .b64 r0; st.param.b64 [a0], %q1; call.uni (r0), malloc, (a0);"
    "ld.param.b64 %q2, [r0]; } st.param.b64 [r], %q2; ret; }"
)


def malloc(target: str, size: str, guard: str = "") -> str:
    return (
        f"{{ .param .b64 a1; .param .b64 r1; st.param.b64 [a1], {size};"
        f"{guard}call.uni (r1), malloc, (a1); ld.param.b64 {target}, [r1]; }}"
    )


def free(address: str, guard: str = "") -> str:
    return f"{{ .param .b64 a2; st.param.b64 [a2], {address}; {guard}call.uni free, (a2); }}"


START = "ld.param.u64 %q0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %q9, %r0, 8, %q0;"


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


def launch(body: str, out: np.ndarray, threads: int = 32, **options):
    text = ptx(f"{START} {body} ret;", ["u64"], MODULE)
    return run(text, "k", (1, 1, 1), (threads, 1, 1), [out], **options)


def test_each_thread_has_memory_of_its_own(tier):
    """Each allocation has the requested size, a 16-byte alignment, and is exclusive until freed."""
    out = np.zeros(64, np.uint64)
    body = (
        "mad.wide.u32 %q1, %r0, 4, 8;" + malloc("%q2", "%q1") + "st.u64 [%q2], %q1;"
        "add.u64 %q3, %q2, %q1; st.u32 [%q3+-4], %r0; bar.sync 0; ld.u64 %q4, [%q2];"
        "st.global.u64 [%q9], %q4; st.global.u64 [%q9+256], %q2;" + free("%q2")
    )
    launch(body, out, tier=tier)
    sizes, addresses = out.reshape(2, 32).astype(np.int64)
    assert sizes.tolist() == [8 + 4 * t for t in range(32)]
    assert not (addresses % 16).any()
    order = np.argsort(addresses)
    assert (addresses[order][1:] >= (addresses + sizes)[order][:-1]).all()


def test_where_there_is_no_room_the_pointer_is_null(tier):
    out = np.zeros(32, np.uint64)
    third = f"mov.u64 %q1, {HEAP_BYTES // 3 - 64};"
    launch(third + malloc("%q2", "%q1") + "st.global.u64 [%q9], %q2;", out, tier=tier)
    assert (out != 0).tolist() == [True] * 3 + [False] * 29


def test_what_is_freed_can_be_had_again(tier):
    """The sizes alternate, so freed blocks must be coalesced."""
    out = np.zeros(1, np.uint64)
    quarter = HEAP_BYTES // 4 - 64
    body = f"mov.u64 %q1, {quarter}; mov.u64 %q5, 0; AGAIN:"
    for k in range(3):
        body += malloc(f"%q{10 + k}", "%q1")
    body += free("%q11") + free("%q10") + free("%q12") + f"mov.u64 %q6, {3 * quarter};"
    body += malloc("%q13", "%q6") + free("%q13")
    body += "setp.eq.u64 %p1, %q13, 0; @%p1 trap; add.u64 %q5, %q5, 1;"
    body += "setp.lt.u64 %p2, %q5, 4; @%p2 bra AGAIN; st.global.u64 [%q0], %q5;"
    launch(body, out, threads=1, tier=tier)
    assert out[0] == 4


def test_guards_and_null_pointers(tier):
    out = np.zeros(32, np.uint64)
    body = (
        "mov.u64 %q1, 16; mov.u64 %q7, 0; setp.lt.u32 %p1, %r0, 3;"
        + malloc("%q2", "%q1", "@%p1 ")
        + "selp.b64 %q2, %q2, 0, %p1; st.global.u64 [%q9], %q2;"
        + free("%q2")
        + free("%q7")
        + free("%q1", "@%p2 ")
    )
    launch("setp.ne.u32 %p2, %r0, %r0;" + body, out, tier=tier)
    assert (out != 0).tolist() == [True] * 3 + [False] * 29


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("st.u32 [%q2+16], 1;", OutOfBoundsError, "4 bytes past the end of device malloc"),
        ("ld.u32 %r1, [%q2+-4];", OutOfBoundsError, "device malloc"),
        (
            free("%q2") + "ld.u32 %r1, [%q2+4];",
            OutOfBoundsError,
            r"4 bytes into a freed block of 16 bytes \(device malloc\)",
        ),
        (free("%q2") + free("%q2"), EmulationError, "free of 0x7f.*: double free"),
        ("add.u64 %q2, %q2, 8;" + free("%q2"), EmulationError, "did not return this address"),
        (free("%q0"), EmulationError, "did not return this address"),
    ],
)
def test_what_is_done_wrong(body, error, message, tier):
    body = "mov.u64 %q1, 16;" + malloc("%q2", "%q1") + body
    with pytest.raises(error, match=message) as caught:
        launch(body, np.zeros(8, np.uint64), threads=1, tier=tier)
    assert caught.value.site is not None


def test_every_launch_and_every_order_begins_with_an_empty_heap():
    out = np.zeros(32, np.uint64)
    most = f"mov.u64 %q1, {HEAP_BYTES - 64}; setp.eq.u32 %p1, %r0, 0; @!%p1 bra OUT;"
    body = most + malloc("%q2", "%q1") + "st.global.u64 [%q9], %q2; st.u64 [%q2], %q2; OUT:"
    found = launch(body, out, check="all")
    assert out[0] != 0
    assert found.findings == ()


def test_an_access_to_freed_memory_is_told_as_such():
    body = "mov.u64 %q1, 16;" + malloc("%q2", "%q1") + free("%q2") + "st.u32 [%q2], 1;"
    found = launch(body, np.zeros(8, np.uint64), threads=1, check="all")
    (message,) = [x.message for x in found.findings if x.kind == "out of bounds"]
    assert message.endswith("(device malloc): free it after the last access")


def test_memory_that_another_block_has_taken_is_that_block():
    """The second block begins where the first one did, and is smaller."""
    body = "mov.u64 %q1, 64;" + malloc("%q2", "%q1") + free("%q2")
    body += "mov.u64 %q1, 16;" + malloc("%q2", "%q1") + "st.u32 [%q2+16], 1;"
    with pytest.raises(OutOfBoundsError, match="4 bytes past the end of device malloc"):
        launch(body, np.zeros(8, np.uint64), threads=1)
