"""Arithmetic that a prediction need not do."""

import pytest

from gemmlab.ptx.parser import parse
from gemmlab.timing.unneeded import unneeded

KERNEL = """
.version 8.3
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 p)
{
.reg .pred %p<4>;
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.reg .b64 %rd<4>;
.shared .align 8 .b8 tile[64];
ld.param.u64 %rd1, [p];
WAIT
BODY
ret;
}
"""
LOADED = "ld.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra END; END:"
PRODUCT = (
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
    "{%f1, %f2, %f3, %f4}, {%r4, %r5, %r6, %r7}, {%r4, %r5}, {%f1, %f2, %f3, %f4};"
)


def left_out(body, wait="barrier.cluster.arrive; barrier.cluster.wait;"):
    text = KERNEL.replace("BODY", body).replace("WAIT", wait).replace("; ", ";\n")
    function = parse(text).entry()
    texts = [one.text.rstrip(";") for one in function.instructions]
    return [texts[i] for i in sorted(unneeded(function))]


def test_what_is_only_stored_is_not_needed():
    body = "mov.f32 %f1, 0f00000000; add.f32 %f1, %f1, %f1; st.global.f32 [%rd1], %f1;"
    assert left_out(body) == ["mov.f32 %f1, 0f00000000", "add.f32 %f1, %f1, %f1"]


@pytest.mark.parametrize(
    "use",
    [
        "st.global.u32 [%rd2], %r1;",
        "ld.global.u32 %r3, [%rd2];",
        "setp.eq.u32 %p1, %r1, 0; @%p1 bra END; END:",
        "setp.eq.u32 %p1, %r1, 0; @%p1 add.u32 %r2, %r2, 1;",
        "shfl.sync.idx.b32 %r2, %r3, %r1, 31, -1;",
    ],
)
def test_addresses_branches_and_guards_are_needed(use):
    found = left_out(f"mov.u32 %r1, 4; cvt.u64.u32 %rd2, %r1; {use}")
    assert "mov.u32 %r1, 4" not in found
    assert ("cvt.u64.u32 %rd2, %r1" in found) == ("%rd2" not in use)


@pytest.mark.parametrize("use", ["st.global.f32 [%rd1], %f1;", "st.shared.f32 [tile], %f1;"])
def test_what_is_stored_is_needed_if_loaded_values_decide(use):
    assert not left_out(f"mov.f32 %f1, 0f00000000; {use} {LOADED}")


def test_sums_of_tensor_cores_are_not_needed_though_loaded_values_decide():
    body = f"{PRODUCT} add.f32 %f5, %f1, %f6; mov.b32 %f7, %r8; st.global.f32 [%rd1], %f5; {LOADED}"
    assert left_out(body) == ["add.f32 %f5, %f1, %f6", "mov.b32 %f7, %r8"]


def test_sums_that_lanes_exchange_are_not_needed_either():
    exchange = "shfl.sync.idx.b32 %r2, %f5, 0, 31, -1; mov.b32 %f6, %r2;"
    body = f"{PRODUCT} add.f32 %f5, %f1, %f1; {exchange} st.global.f32 [%rd1], %f6; {LOADED}"
    assert left_out(body) == ["add.f32 %f5, %f1, %f1", "mov.b32 %f6, %r2"]


def test_values_that_lanes_exchange_are_needed_if_the_result_is():
    body = "mov.u32 %r1, 4; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;"
    assert left_out(body) == ["mov.u32 %r1, 4"]
    assert not left_out(f"{body} setp.eq.u32 %p1, %r2, 0; @%p1 bra END; END:")


def test_kernels_without_bulk_copies_and_clusters_are_whole():
    assert not left_out("mov.f32 %f1, 0f00000000; st.global.f32 [%rd1], %f1;", wait="")
