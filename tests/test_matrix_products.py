"""What instructions of tensor cores multiply, by their opcodes."""

import pytest

from gemmlab.ptx import products

WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"


@pytest.mark.parametrize(
    ("opcode", "lanes", "flops"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 32, 2 * 16 * 8 * 8),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", 32, 2 * 16**3),
        (WGMMA, 128, 2 * 64 * 128 * 16),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", 32, 0),
        ("wgmma.wait_group.sync.aligned", 128, 0),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, 0),
        ("fma.rn.f32", 32, 0),
    ],
)
def test_flops_of_all_lanes_of_a_product(opcode, lanes, flops):
    assert lanes * products.flops(opcode.split(".")) == flops


@pytest.mark.parametrize(
    ("lines", "bits"),
    [
        ([f"{WGMMA} {{%f1}}, %rd1, %rd2;", "wmma.load.a.sync.m16n16k16.f16 {%r1}, [%rd1];"], 16),
        (["@%p1 mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1};"], 32),
        (["mma.sync.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1};", f"{WGMMA} {{%f1}};"], 16),
        (["tcgen05.mma.cta_group::1.kind::tf32 [%r1], %rd1, %rd2, %r2;"], 32),
        (["mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1};"], 8),
        (["mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1};"], None),
        (["wmma.load.a.sync.m16n16k16.f16 {%r1}, [%rd1];", "fma.rn.f32 %f1;"], None),
    ],
)
def test_the_narrowest_inputs_tell_the_peak(lines, bits):
    assert products.least_bits("\n".join(lines)) == bits
