"""The shared memory that CUDA reserves, which cooperative groups larger than a warp use."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import ptx

from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.devices.emulated import emulate
from gemmlab.emulator import run
from gemmlab.errors import OutOfBoundsError

NAMES = ("begin", "0", "1", "end", "cap")
READ = "".join(
    f"mov.u32 %r1, %reserved_smem_offset_{name}; st.global.u32 [%q0+{4 * k}], %r1;"
    for k, name in enumerate(NAMES)
)
SIZES = "".join(
    f"mov.u32 %r1, {name}; st.global.u32 [%q0+{20 + 4 * k}], %r1;"
    for k, name in enumerate(("own", "%total_smem_size", "%dynamic_smem_size", "%aggr_smem_size"))
)
DECLARED = ".shared .align 16 .b8 own[64]; .extern .shared .align 16 .b8 more[];"


@pytest.mark.parametrize("tier", ["numpy", "native"])
def test_where_it_lies(tier):
    """It precedes the kernel's own variables, starts at zero, and has its own size registers."""
    out = np.zeros(16, np.uint32)
    zeros = (
        "mov.u32 %r2, %reserved_smem_offset_1; ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2+272];"
        "or.b32 %r3, %r3, %r6; st.global.u32 [%q0+36], %r3; st.shared.u32 [%r2+284], 7;"
        "ld.shared.u32 %r7, [own]; st.global.u32 [%q0+40], %r7;"
    )
    text = ptx(f"ld.param.u64 %q0, [p0]; {READ} {SIZES} {zeros} ret;", ["u64"], DECLARED)
    run(text, "k", (2, 1, 1), (1, 1, 1), [out], 32, tier=tier)
    begin, first, second, end, cap, own, *sizes = out[:9].tolist()
    assert (begin, first, second, end, cap, own) == (0, 0, 0, 288, 1024, 1024)  # as on an H200
    assert sizes == [96, 32, 96 + 1024]
    assert out[9:].tolist() == [0] * 7


@pytest.mark.parametrize("tier", ["numpy", "native"])
def test_shared_memory_ends_where_it_did(tier):
    body = "mov.u32 %r1, %reserved_smem_offset_end; ld.shared.u32 %r2, [own+64]; ret;"
    with pytest.raises(OutOfBoundsError, match="1088 bytes of shared memory"):
        run(ptx(body, module=DECLARED), "k", (1, 1, 1), (1, 1, 1), [], tier=tier)


def test_its_zeros_count_as_written():
    out = np.zeros(1, np.uint32)
    body = (
        "ld.param.u64 %q0, [p0]; mov.u32 %r1, %reserved_smem_offset_1;"
        "atom.shared.add.u32 %r2, [%r1], 1; bar.sync 0; ld.shared.u32 %r3, [%r1];"
        "mov.u32 %r4, %tid.x; setp.eq.u32 %p1, %r4, 0; @%p1 st.global.u32 [%q0], %r3; ret;"
    )
    found = run(ptx(body, ["u64"]), "k", (1, 1, 1), (64, 1, 1), [out], check="all")
    assert (out[0], found.findings) == (64, ())


CUDA = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void tiles(int* y) {
    __shared__ int own[128];
    auto tile = cg::tiled_partition<64>(cg::this_thread_block());
    own[threadIdx.x] = threadIdx.x;
    int sum = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
    tile.sync();
    y[threadIdx.x] = sum + tile.shfl(own[127 - threadIdx.x], 5) * 10000;
}
"""


@pytest.mark.parametrize("tier", ["numpy", "native"])
@pytest.mark.slow
def test_tiles_of_two_warps(tier):
    """On the native tier, the first warp spins until the other has read its value."""
    y = np.zeros(128, np.int32)
    emulate(compile_cuda(CUDA), grid=1, block=128, args=[y], tier=tier)
    assert y.reshape(2, 64)[:, ::63].tolist() == [[2016 + 1220000] * 2, [6112 + 580000] * 2]
