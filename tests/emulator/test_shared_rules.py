"""Each rule that both tiers need is defined once: if it is broken, both tiers fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from snippets import ptx

from gemmlab.emulator import run
from gemmlab.emulator.arithmetic import formats, tensor_core
from gemmlab.emulator.counters import rules
from gemmlab.emulator.memory import addresses
from gemmlab.emulator.native import runtime
from gemmlab.emulator.native.kernel import Kernel
from gemmlab.emulator.program import Access
from gemmlab.emulator.synchronization import barriers, collectives, mbarriers
from gemmlab.emulator.tensor_cores import fragments, matrices, wgmma
from gemmlab.emulator.translation.translate import translate
from gemmlab.errors import InternalError, OutOfBoundsError

SHARED = ".shared .align 128 .b8 s[16384];"
LANES = "mov.u32 %r0, %tid.x; mov.u32 %r1, s; ld.param.u64 %q0, [p0];"
COPY = "shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; cvt.u64.u32 %q1, %r2; add.u64 %q1, %q0, %q1;"
COPY += "cp.async.{}.shared.global [%r1], [%q1], 16; cp.async.wait_all;"
BARRIER = "setp.lt.u32 %p1, %r0, 8; bar.sync 0, 64; bar.red.{0} {1}, 1, %p1;"
MBARRIER = "mbarrier.init.shared.b64 [s], 64; mbarrier.arrive.shared.b64 %q1, [s];"
MBARRIER += "mbarrier.test_wait.parity.shared.b64 %p2, [s], 0; mbarrier.inval.shared.b64 [s];"
FULL = "0xffffffff"
# What a thread of the kernel executes.
LOAD = "shl.b32 %r2, %r0, 3; add.u32 %r2, %r1, %r2; ld.shared.v2.u32 {%r3, %r4}, [%r2];"
GLOBAL = "mul.wide.u32 %q1, %r0, 4; add.u64 %q1, %q0, %q1; ld.global.u32 %r2, [%q1];"
LOCAL = "setp.lt.u32 %p1, %r0, 8; @%p1 st.local.u32 [l], %r0;"
WMMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {{{d}}}, {{{a}}}, {{{a}}}, {{{d}}};"
WMMA = WMMA.format(a=", ".join(["%r2"] * 8), d=", ".join(["%f1"] * 8))
LOAD_WMMA = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{a}}}, [%q0], 16;"
LOAD_WMMA = LOAD_WMMA.format(a=", ".join(f"%r{k}" for k in range(2, 10)))
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.{t}.{t}.f32 {{%f0, %f1, %f2, %f3}}, "
MMA += "{{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {{%f0, %f1, %f2, %f3}};"
WGMMA = "wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
WGMMA += "{%f0, %f1, %f2, %f3}, %q2, %q2, 1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;"
RULES: list[tuple[Callable[..., Any], str]] = [
    (rules.sector, GLOBAL),
    (rules.words_per_lane, LOAD),
    (rules.reads_alike, LOAD),
    (rules.local_address, LOCAL),
    (rules.line, COPY.format("ca")),
    (rules.tag_bank, COPY.format("ca")),
    (rules.bypass_key, COPY.format("cg")),
    (addresses.excess_bits, LOAD),
    (addresses.within, "ld.shared.u32 %r2, [%r1+20000];"),
    (Access.at, "ld.shared.u32 %r2, [%r1+4];"),
    (barriers.is_bad_count, BARRIER.format("popc.u32", "%r2")),
    (barriers.wanted, BARRIER.format("popc.u32", "%r2")),
    (barriers.is_complete, BARRIER.format("popc.u32", "%r2")),
    (barriers.reduction, BARRIER.format("and.pred", "%p2")),
    (mbarriers.fields, MBARRIER),
    (mbarriers.word_of, MBARRIER),
    (mbarriers.advance, MBARRIER),
    (mbarriers.is_complete, MBARRIER),
    (mbarriers.is_bad_count, MBARRIER),
    (mbarriers.is_bad_tx, MBARRIER),
    (mbarriers.is_over, MBARRIER),
    (mbarriers.phase_of, MBARRIER),
    (collectives.source_lanes, f"shfl.sync.down.b32 %r2, %r0, %r1, 31, {FULL};"),
    (collectives.verdict, f"vote.sync.uni.pred %p1, %p2, {FULL};"),
    (collectives.agreement, f"match.all.sync.b32 %r2|%p1, %r0, {FULL};"),
    (collectives.neutral, f"redux.sync.min.u32 %r2, %r0, {FULL};"),
    (collectives.lowest, f"elect.sync %r2|%p1, {FULL};"),
    (matrices.arrange_operand, MMA.format(t="f16")),
    (matrices.arrange_accumulator, MMA.format(t="f16")),
    (fragments.arrange, WMMA),
    (fragments.Fragment.excess_bits, LOAD_WMMA),
    (formats.widen, MMA.format(t="bf16")),
    (tensor_core.power_of_two, MMA.format(t="bf16")),
    (tensor_core.narrow_power_of_two, MMA.format(t="f16")),
    (tensor_core.toward_zero, MMA.format(t="f16")),
    (wgmma.Descriptor.of.__func__, WGMMA),  # type: ignore[attr-defined]
    (wgmma.Descriptor.swizzled, WGMMA),
    (wgmma.chunk_offset, WGMMA),
]


def broken(*_: Any, **__: Any) -> Any:
    raise ArithmeticError("a broken rule")


def kernel(body: str) -> str:
    return ptx(f".local .align 4 .b8 l[4]; {LANES} {body} ret;", ["u64"], SHARED)


def on_numpy(text: str) -> None:
    wgmma.chunk_offsets.cache_clear()
    rules.known_wavefronts.cache_clear()
    block = (128 if "wgmma" in text else 64, 1, 1)
    with suppress(OutOfBoundsError):
        run(text, "k", (1, 1, 1), block, [np.zeros(4096, np.uint32)], tier="numpy")


def on_native(text: str) -> None:
    """Emit all code of the runtime and of a kernel; nothing is compiled."""
    runtime.text()
    compiled = Kernel(translate(text), True)
    for product in compiled.metadata.products:
        assert product.text


@pytest.mark.slow
def test_the_kernels_of_this_test_run() -> None:
    for text in {kernel(body) for _, body in RULES}:
        on_numpy(text)
        on_native(text)


@pytest.mark.parametrize(("rule", "body"), RULES, ids=lambda x: getattr(x, "__qualname__", ""))
def test_both_tiers_use(rule: FunctionType, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel(body)
    monkeypatch.setattr(rule, "__code__", broken.__code__)
    with pytest.raises(ArithmeticError, match="a broken rule"):
        on_numpy(text)
    with pytest.raises((ArithmeticError, InternalError), match="a broken rule"):
        on_native(text)
