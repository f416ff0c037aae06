"""One sample of every form of every instruction that the emulator supports.

A line has an instruction's name, its modifiers, and its operands. ptxas accepts the modifiers in
any order, except those in parentheses, whose order is significant.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LINES = r"""
activemask | b32 | %r1
elect | sync | %r1|%p1, %r2
match | any sync b32 | %r1, %r2, %r3
match | all sync b64 | %r1|%p1, %q2, %r3
vote | sync all pred | %p1, %p2, %r3
vote | sync uni pred | %p1, !%p2, %r3
vote | sync ballot b32 | %r1, %p2, %r3
shfl | sync idx b32 | %r1|%p1, %r2, %r3, %r4, %r5
shfl | sync up b32 | %r1, %r2, %r3, %r4, %r5
shfl | sync down b32 | %r1, %r2, %r3, %r4, %r5
shfl | sync bfly b32 | %r1, %r2, %r3, %r4, %r5
redux | sync add u32 | %r1, %r2, %r3
redux | sync xor b32 | %r1, %r2, %r3
bar.warp | sync | %r1
bar | sync | 1, 64
bar.arrive | | 1, 64
bar.red | popc u32 | %r1, 0, %p1
bar.cta.red | or pred | %p1, 0, %p2
barrier | sync aligned | 0
barrier.cta | sync aligned | 0
barrier.cta.arrive | aligned | 1, 64
barrier.red | and aligned pred | %p1, 0, %p2
barrier.cluster.arrive | release aligned |
barrier.cluster.wait | acquire aligned |
mov | b32 | %r1, %r2
cvta | shared u64 | %q1, %q2
cvta.to | shared::cta u64 | %q1, %q2
isspacep | global | %p1, %q2
mapa | shared::cluster u32 | %r1, %r2, %r3
getctarank | s64 | %r1, %q2
ld | volatile global v2 u32 | {%r1, %r2}, [%q1]
ld | acquire sys global v2 f64 | {%g1, %g2}, [%q1]
ld | mmio relaxed sys global u32 | %r1, [%q1]
ld | weak global ca u32 | %r1, [%q1]
ld | global ca nc u32 | %r1, [%q1]
ld | global L1::evict_first L2::cache_hint L2::64B v4 f32 | {%f1, %f2, %f3, %f4}, [%q1], %q2
ld | global nc L1::no_allocate L2::256B v4 f32 | {%f1, %f2, %f3, %f4}, [%q1]
ld | acquire cluster shared::cluster b32 | %r1, [%r2]
ldu | global v4 f32 | {%f1, %f2, %f3, %f4}, [%q1]
st | weak global wb u32 | [%q1], %r1
st | relaxed cluster shared::cluster u32 | [%r2], %r1
st | global L1::evict_last L2::cache_hint v4 f32 | [%q1], {%f1, %f2, %f3, %f4}, %q2
atom | acq_rel sys global cas b64 | %q1, [%q2], %q3, %q4
atom | acquire cta shared::cta exch b32 | %r1, [%r3], %r2
atom | relaxed gpu global add noftz bf16 | %h1, [%q1], %h2
atom | global add L2::cache_hint u32 | %r1, [%q1], %r2, %q3
atom | relaxed sys global add noftz v2 f16x2 | {%r1, %r2}, [%q1], {%r3, %r4}
red | release gpu global min s32 | [%q1], %r2
red | relaxed gpu global add L2::cache_hint v4 f32 | [%q1], {%f1, %f2, %f3, %f4}, %q2
red.async | relaxed cluster shared::cluster mbarrier::complete_tx::bytes add u32 | [%r1], %r2, [%r3]
st.async | weak shared::cluster mbarrier::complete_tx::bytes v2 u32 | [%r1], {%r2, %r3}, [%r4]
setp | lt s32 | %p1, %r1, %r2
setp | hi and u64 | %p1|%p2, %q1, %q2, %p3
setp | neu xor ftz f32 | %p1, %f1, %f2, %p2
set | lt ftz (u32 f32) | %r1, %f1, %f2
set | lt xor ftz (f16x2 f16x2) | %r1, %r2, %r3, !%p1
cvt | rn (f32 s32) | %f1, %r2
cvt | rzi ftz (s32 f32) | %r1, %f2
cvt | rn ftz sat (f32 f64) | %f1, %g2
cvt | sat (u16 s32) | %h1, %r2
cvt | rn relu satfinite (f16x2 f32) | %r1, %f1, %f2
cvt | rn satfinite (e4m3x2 f32) | %h1, %f1, %f2
cvt.pack | sat (s8 s32 b32) | %r1, %r2, %r3, %r4
add | cc u32 | %r1, %r2, %r3
subc | cc u32 | %r1, %r2, %r3
mad.lo | cc u32 | %r1, %r2, %r3, %r4
mad.hi | sat s32 | %r1, %r2, %r3, %r4
mad.wide | s32 | %q1, %r1, %r2, %q2
madc.hi | u32 | %r1, %r2, %r3, %r4
dp4a | (u32 s32) | %r1, %r2, %r3, %r4
dp2a.hi | (s32 u32) | %r1, %r2, %r3, %r4
vabsdiff4 | (u32 u32 s32) add | %r1, %r2, %r3, %r4
max | relu s16x2 | %r1, %r2, %r3
slct | ftz (u32 f32) | %r1, %r2, %r3, %f4
fma | rn ftz relu f16x2 | %r1, %r2, %r3, %r4
min | ftz NaN xorsign abs f16x2 | %r1, %r2, %r3
min | ftz NaN xorsign abs f32 | %f1, %f2, %f3
add | rn ftz sat f32 | %f1, %f2, %f3
mul | rn ftz sat f32 | %f1, %f2, %f3
neg | ftz f16 | %h1, %h2
mul.wide | u16 | %r1, %h2, %h3
mad24.hi | sat s32 | %r1, %r2, %r3, %r4
div | approx ftz f32 | %f1, %f2, %f3
div.full | ftz f32 | %f1, %f2, %f3
rcp | rn ftz f32 | %f1, %f2
lg2 | approx ftz f32 | %f1, %f2
shf.l | wrap b32 | %r1, %r2, %r3, %r4
szext | clamp s32 | %r1, %r2, %r3
lop3 | or b32 | %r1|%p1, %r2, %r3, %r4, 0x1b, %p2
bfind | shiftamt s64 | %r1, %q2
prmt | b32 rc16 | %r1, %r2, %r3, %r4
testp | finite f32 | %p1, %f1
cp.async | ca (shared global) L2::128B | [%r1], [%q1], 16
cp.async | cg (shared::cta global) L2::cache_hint L2::256B | [%r1], [%q1], 16, %q2
cp.async.wait_group | | 1
cp.async.mbarrier.arrive | noinc shared::cta b64 | [%r1]
mbarrier.init | shared::cta b64 | [%r1], %r2
mbarrier.expect_tx | relaxed cta shared::cta b64 | [%r1], %r2
mbarrier.arrive | noComplete release cta shared::cta b64 | %q1, [%r1], %r2
mbarrier.arrive.expect_tx | release cta shared::cta b64 | %q1, [%r1], %r2
mbarrier.test_wait | acquire cta shared::cta b64 | %p1, [%r1], %q2
mbarrier.try_wait.parity | acquire cluster shared::cta b64 | %p1, [%r1], %r2, %r3
cp.async.bulk | (shared::cluster global) mbarrier::complete_tx::bytes multicast::cluster \
    L2::cache_hint | [%r1], [%q1], 16, [%r2], %h1, %q2
cp.async.bulk | (global shared::cta) bulk_group L2::cache_hint | [%q1], [%r1], 16, %q2
cp.async.bulk.wait_group | read | 0
cp.async.bulk.prefetch | L2 global L2::cache_hint | [%q1], 16, %q2
cp.async.bulk.tensor | 2d (shared::cluster global) tile mbarrier::complete_tx::bytes \
    multicast::cluster L2::cache_hint | [%r1], [%q1, {%r2, %r3}], [%r4], %h1, %q2
cp.async.bulk.tensor | 1d (global shared::cta) tile bulk_group | [%q1, {%r1}], [%r4]
cp.async.bulk.prefetch.tensor | 2d L2 global tile L2::cache_hint | [%q1, {%r1, %r2}], %q2
cp.reduce.async.bulk | (global shared::cta) bulk_group L2::cache_hint add noftz f16 \
    | [%q1], [%r1], 16, %q2
cp.reduce.async.bulk.tensor | 2d (global shared::cta) add tile bulk_group L2::cache_hint \
    | [%q1, {%r1, %r2}], [%r4], %q2
tensormap.replace | tile box_dim shared::cta b1024 b32 | [%r1], 1, %r2
tensormap.cp_fenceproxy | (global shared::cta) tensormap::generic release gpu sync aligned \
    | [%q1], [%r1], 128
fence | acq_rel gpu |
fence | mbarrier_init release cluster |
fence.proxy | async shared::cta |
fence.proxy | tensormap::generic acquire gpu | [%q1], 128
membar | gl |
prefetch | global L2::evict_last | [%q1]
discard | global L2 | [%q1], 128
applypriority | global L2::evict_normal | [%q1], 128
createpolicy.fractional | (L2::evict_first L2::evict_unchanged) b64 | %q1, 0.5
createpolicy.cvt | L2 b64 | %q1, %q2
createpolicy.range | global (L2::evict_last L2::evict_first) b64 | %q1, [%q2], %r1, %r2
griddepcontrol | wait |
setmaxnreg.inc | sync aligned u32 | 64
ldmatrix | sync aligned m8n8 x4 trans shared b16 | {%r1, %r2, %r3, %r4}, [%r5]
stmatrix | sync aligned m8n8 x2 trans shared b16 | [%r5], {%r1, %r2}
movmatrix | sync aligned m8n8 trans b16 | %r1, %r2
mma | sync aligned m16n8k16 (row col) (f32 f16 f16 f32) \
    | {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4}
mma | sync aligned m16n8k32 (row col) satfinite (s32 s8 u8 s32) \
    | {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r7,%r8,%r9,%r10}
wmma.load.a | sync aligned row m16n16k16 global f16 \
    | {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%q1], 16
wmma.store.d | sync aligned row m16n16k16 global f32 \
    | [%q1], {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, 16
wmma.mma | sync aligned (col row) m16n16k16 (s32 s8 s8 s32) satfinite \
    | {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r1,%r2}, {%r3,%r4}, {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}
wmma.mma | sync aligned (row col) m8n8k4 rn (f64 f64 f64 f64) | {%g1,%g2}, {%g3}, {%g4}, {%g5,%g6}
wgmma.fence | sync aligned |
wgmma.wait_group | sync aligned | 0
wgmma.mma_async | sync aligned m64n8k32 satfinite (s32 s8 u8) | {%r1,%r2,%r3,%r4}, %q1, %q2, %p1
"""


class Form(NamedTuple):
    """A line of the table. Words whose order is significant are in one tuple."""

    name: str
    groups: tuple[tuple[str, ...], ...]
    operands: str

    def text(self, words: Sequence[str]) -> str:
        return f"{'.'.join([self.name, *words])} {self.operands};"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the modifiers in the order of the PTX ISA manual."""
        return tuple(word for group in self.groups for word in group)

    @property
    def opcode(self) -> tuple[str, ...]:
        return (*self.name.split("."), *self.words)

    def orders(self, count: int) -> Iterator[list[str]]:
        """Return some other orders of the modifiers that are equivalent."""
        chance = random.Random(str(self))
        for _ in range(count):
            places = [k for k, group in enumerate(self.groups) for _ in group]
            chance.shuffle(places)
            left = [list(group) for group in self.groups]
            yield [left[k].pop(0) for k in places]


def _form(line: str) -> Form:
    name, words, operands = (part.strip() for part in line.split(" |"))
    groups = [tuple(one.strip("()").split()) for one in re.findall(r"\(.*?\)|\S+", words)]
    return Form(name, tuple(groups), operands)


FORMS = [_form(line) for line in LINES.replace("\\\n", " ").strip().split("\n")]
