"""The modifiers of each PTX instruction, and their canonical order.

ptxas accepts the modifiers of an instruction in any order: `match.sync.any.b32` is
`match.any.sync.b32`. Only the relative order of modifiers of the same kind matters, if their
position has a meaning: the two types of cvt, the state spaces of a copy, the layouts of a product.
SYNTAX has a row for each instruction name with the kinds of modifiers it accepts, in the order of
the PTX ISA manual. A name may have several words (`mad.lo`, `cp.async.bulk.tensor`), which must
come first. A name without a row accepts a type alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from string import Template
from typing import NamedTuple

# Kind of modifier -> regular expression. By default, an instruction has at most one of each kind.
KINDS = {
    "type": r"[bus]\d+|[us]\d+x\d|b\d+x\d+(_p\d+)?|f\d+(x2)?|bf16(x2)?|tf32|ue\dm\d(x\d)?"
    r"|e\dm\d(x\d)?|pred",
    "action": "wait|launch_dependents",
    "aligned": "aligned",
    "abs": "abs",
    "approx": "approx",
    "cache": "ca|cg|cs|cv|lu|wb|wt",
    "cc": "cc",
    "clamp": "clamp|wrap",
    "comparison": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
    "completion": "mbarrier::complete_tx::bytes|bulk_group",
    "dimension": r"\dd",
    "field": "global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype"
    "|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode",
    "ftz": "ftz",
    "hint": "L2::cache_hint",
    "init": "mbarrier_init",
    "l1": "L1::.*",
    "layout": "row|col",
    "level": "L1|L2",
    "map": "b1024",
    "mmio": "mmio",
    "mode": "tile(::.*)?|im2col(::.*|_no_offs)?",
    "multicast": "multicast::cluster",
    "nan": "NaN",
    "nc": "nc",
    "no_complete": "noComplete",
    "noftz": "noftz",
    "noinc": "noinc",
    "number": "x1|x2|x4",
    "oob": "oob",
    "operation": "and|or|xor|add|min|max|inc|dec|exch|cas|popc",
    "order": "weak|volatile|relaxed|acquire|release|acq_rel|sc",
    "prefetch": r"L2::\d+B",
    "priority": "L2::evict_.*",
    "property": "finite|infinite|number|notanumber|normal|subnormal",
    "proxy": "alias|async|async::generic|tensormap::generic",
    "read": "read",
    "relu": "relu",
    "restrict": "sync_restrict::.*",
    "rounding": "r[nzmp]i?|rna|rs",
    "sat": "sat",
    "satfinite": "satfinite",
    "scope": "cta|cluster|gpu|sys|gl",
    "selector": "f4e|b4e|rc8|ecl|ecr|rc16",
    "shape": r"m\d+(n\d+)?(k\d+)?",
    "shift": "shiftamt",
    # local::frame is not PTX: it marks accesses to the stack frames of recursive functions.
    "space": "global|const|local(::frame)?|param(::entry|::func)?|shared(::cta|::cluster)?",
    "sparse": "sp(::.*)?",
    "sync": "sync",
    "tensormap": "tensormap",
    "transposed": "trans",
    "uniform": "uni",
    "vector": "v2|v4|v8",
    "way": "all|any|uni|ballot|up|down|bfly|idx",
    "xorsign": "xorsign",
}
# Names: the kinds of modifiers that may follow. `type*2`: up to two modifiers of this kind, whose
# relative order is kept.
SYNTAX = """
activemask: type
elect: sync
match: way sync type
vote shfl: sync way type
redux: sync operation abs nan type
bar bar.warp bar.cta: sync
bar.red bar.cta.red: operation type
bar.arrive bar.cta.arrive:
barrier barrier.cta: sync aligned
barrier.red barrier.cta.red: operation aligned type
barrier.arrive barrier.cta.arrive: aligned
barrier.cluster.arrive barrier.cluster.wait: order aligned

mov: type
cvta cvta.to mapa getctarank: space type
isspacep: space
ld: mmio order scope space cache nc l1 priority hint prefetch vector type
ldu: space vector type
st: mmio order scope space cache l1 priority hint vector type
st.async: mmio order scope space completion vector type
atom red: order scope space operation noftz hint vector type
red.async: mmio order scope space completion operation type
prefetch: space level priority tensormap
prefetchu discard: space level
applypriority: space priority
createpolicy.fractional createpolicy.range: space priority*2 type
createpolicy.cvt: level type

setp: comparison operation ftz type
set: comparison operation ftz type*2
cvt: rounding ftz sat relu satfinite type*2
cvt.pack: sat type*3
add sub: rounding ftz sat cc type
addc subc: cc type
mul mad: rounding ftz sat type
mul.lo mul.hi mul.wide mad.wide: type
mad.lo mad.hi: sat cc type
madc.lo madc.hi: cc type
mul24.lo mul24.hi: type
mad24.lo mad24.hi: sat type
fma: rounding ftz sat relu oob type
div rcp sqrt rsqrt: rounding approx ftz type
div.full: ftz type
ex2 lg2 sin cos tanh: approx ftz type
abs neg: ftz type
min max: ftz nan xorsign abs relu type
lop3: operation type
shf.l shf.r bmsk szext: clamp type
bfind: shift type
prmt: type selector
testp: property type
slct: ftz type*2
dp4a dp2a.lo dp2a.hi: type*2
vabsdiff2 vabsdiff4: type*3 sat operation

bra brx.idx call ret: uniform
exit trap:
nanosleep: type
pmevent pmevent.mask:
fence: init order restrict scope
fence.proxy: proxy order restrict scope space
membar: scope
membar.proxy: proxy
griddepcontrol: action
setmaxnreg.inc setmaxnreg.dec: sync aligned type

mbarrier.init mbarrier.inval: space type
mbarrier.pending_count: type
mbarrier.expect_tx mbarrier.complete_tx: order scope space type
mbarrier.arrive mbarrier.arrive_drop: no_complete order scope space type
mbarrier.arrive.expect_tx mbarrier.arrive_drop.expect_tx: order scope space type
mbarrier.test_wait mbarrier.test_wait.parity: order scope space type
mbarrier.try_wait mbarrier.try_wait.parity: order scope space type

cp.async: cache space*2 hint prefetch
cp.async.commit_group cp.async.wait_group cp.async.wait_all:
cp.async.mbarrier.arrive: noinc space type
cp.async.bulk: space*2 completion multicast hint
cp.async.bulk.commit_group:
cp.async.bulk.wait_group: read
cp.async.bulk.prefetch: level space hint
cp.async.bulk.tensor: dimension space*2 mode completion multicast hint
cp.async.bulk.prefetch.tensor: dimension level space mode hint
cp.reduce.async.bulk: space*2 completion hint operation noftz type
cp.reduce.async.bulk.tensor: dimension space*2 operation mode completion hint
tensormap.replace: mode field space map type
tensormap.cp_fenceproxy: space*2 proxy order scope sync aligned

ldmatrix stmatrix: sync aligned shape number transposed space type*2
movmatrix: sync aligned shape transposed type
mma: sparse sync aligned shape layout*2 satfinite type*4 operation*2
wmma.load.a wmma.load.b wmma.load.c wmma.store.d: sync aligned layout shape space type
wmma.mma: sync aligned layout*2 shape rounding type*4 satfinite
wgmma.fence wgmma.commit_group wgmma.wait_group: sync aligned
wgmma.mma_async: sparse sync aligned shape satfinite type*3
"""

# Instructions for which not all modifiers can be combined: regular expressions of the modifiers in
# canonical order; several rows for a name are alternatives. A dot is literal, `$scope` is an entry
# of PARTS.
COMBINATIONS = """
bar.red bar.cta.red barrier.red barrier.cta.red: .popc(.aligned)?.u32|.(and|or)(.aligned)?.pred
barrier.cluster.arrive: (.release|.relaxed)?(.aligned)?
barrier.cluster.wait: (.acquire)?(.aligned)?

mapa getctarank: (.shared::cluster)?.[us](32|64)
ld: (.mmio)?(.(weak|volatile|(relaxed|acquire)$scope))?($space)?(.c[agsv]|.lu)?$rest
ld: (.weak)?.global(.c[ags])?.nc$rest
ldu: (.global)?$rest
st: (.mmio)?(.(weak|volatile|(relaxed|release)$scope))?($space)?(.cg|.cs|.wb|.wt)?$rest
st.async: (.weak)?(.shared::cluster)?.mbarrier::complete_tx::bytes(.v[24])?.([bsu](32|64)|f32|f64)
prefetch: (.global|.local)?.L[12]|(.global)?.L2::evict_(last|normal)|(.const|.param)?.tensormap
prefetchu: .L1
discard: (.global)?.L2
applypriority: (.global)?.L2::evict_normal
createpolicy.fractional: $priority(.L2::evict_(first|unchanged))?.b64
createpolicy.range: (.global)?$priority(.L2::evict_(first|unchanged))?.b64
createpolicy.cvt: .L2.b64

setp: $ordered($bool)?.s(16|32|64)|($ordered|.lo|.ls|.hi|.hs)($bool)?.u(16|32|64)
setp: (.eq|.ne)($bool)?.b(16|32|64)
setp: $comparison($bool)?(.ftz)?.f(32|16|16x2)|$comparison($bool)?(.f64|.bf16(x2)?)
set: $ordered($bool)?$mark.s(16|32|64)|($ordered|.lo|.ls|.hi|.hs)($bool)?$mark.u(16|32|64)
set: (.eq|.ne)($bool)?$mark.b(16|32|64)
set: $comparison($bool)?((.ftz)?$mark.f32|$mark.f64)
set: $comparison($bool)?(.[us]16|.[us]32|.bf16)((.ftz)?.f16|.bf16)
set: $comparison($bool)?((.ftz)?(.[us]32|.f16x2).f16x2|(.[us]32|.bf16x2).bf16x2|(.ftz)?.f16.f16)
cvt: (.sat)?$int$int|$whole(.sat)?$int(.f16|.f64)|$whole(.ftz)?(.sat)?$int.f32
cvt: $round(.sat)?(.f16|.f64)$int|$round(.ftz)?(.sat)?.f32($int|.f64)|$round(.sat)?.f16.f64
cvt: $round.bf16(.[us](16|32|64)|.f64)|$whole.[us](16|32|64).bf16
cvt: ($round)?(.f16.bf16|.f64.bf16|.bf16.f16)|($round)?(.ftz)?.f32.bf16
cvt: ($whole)?(.bf16.bf16|(.sat)?(.f16.f16|.f64.f64)|(.ftz)?(.sat)?.f32.f32)
cvt: (.ftz)?(.sat)?(.f32.f16|.f64.f32)|(.sat)?.f64.f16
cvt: $round(.ftz)?((.sat)?.f16|.bf16).f32|.r[nz](.relu)?(.satfinite)?.b?f16(x2)?.f32
cvt: .r[nz](.relu)?.tf32.f32|.rna(.satfinite)?.tf32.f32
cvt: .rn(.relu)?(.satfinite(.e4m3x2|.e5m2x2)(.f32|.f16x2)|.f16x2(.e4m3x2|.e5m2x2))
ex2: .approx((.ftz)?.f32|.f16(x2)?|.ftz.bf16(x2)?)
nanosleep: .u32
fence: (.sc|.acq_rel|.acquire|.release)?($restrict)?$scope
fence: .mbarrier_init.release($restrict)?.cluster
membar: .cta|.gl|.sys
membar.proxy: .alias|.async
fence.proxy: .alias|.async(.global|$shared)?|.tensormap::generic(.acquire|.release)$scope
fence.proxy: .async::generic.(acquire|release)($restrict)?.cluster
griddepcontrol: .wait|.launch_dependents

mbarrier.init mbarrier.inval: (.shared(::cta)?)?.b64
mbarrier.expect_tx mbarrier.complete_tx: (.relaxed.(cta|cluster))?($shared)?.b64
mbarrier.arrive mbarrier.arrive_drop: (.noComplete)?$releases($shared)?.b64
mbarrier.arrive.expect_tx mbarrier.arrive_drop.expect_tx: $releases($shared)?.b64
mbarrier.test_wait mbarrier.try_wait: $acquires(.shared(::cta)?)?.b64
mbarrier.test_wait.parity mbarrier.try_wait.parity: $acquires(.shared(::cta)?)?.b64
cp.async.mbarrier.arrive: (.noinc)?(.shared(::cta)?)?.b64
"""
PARTS = {
    "acquires": "(.(acquire|relaxed).(cta|cluster))?",
    "bool": ".(and|or|xor)",
    "comparison": ".(eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)",
    "int": ".[us](8|16|32|64)",
    "mark": "(.[us]32|.f32|.f16|.bf16)",  # result types of set
    "ordered": ".(eq|ne|lt|le|gt|ge)",
    "priority": ".L2::evict_(last|normal|first|unchanged)",
    "releases": "(.(release|relaxed).(cta|cluster))?",
    "rest": "(.L[12]::[a-z_0-9B]+)*(.v[248])?.(?!pred)[a-z0-9]+",
    "restrict": ".sync_restrict::shared::(cta|cluster)",
    "round": ".r[nzmp]",
    "scope": ".(cta|cluster|gpu|sys)",
    "shared": ".shared(::cta|::cluster)?",
    "space": ".(global|const|local(::frame)?|param(::entry|::func)?|shared(::cta|::cluster)?)",
    "whole": ".r[nzmp]i",
}


# Instructions outside the scope of the emulator -> reason.
TEXTURES = "textures and surfaces are not emulated"
ABSENT = dict.fromkeys(("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"), TEXTURES)
ABSENT |= {"multimem": "memory of several GPUs is not emulated"}
ABSENT |= {"tcgen05": "tensor memory, of Blackwell, is not emulated"}


@dataclass(frozen=True)
class Row:
    """The modifiers that an instruction name accepts.

    The expressions are compiled when the first instruction of the name is read: all of them take as
    long as importing the rest of the PTX front end.
    """

    most: dict[str, int]  # kind -> maximum number of modifiers; in canonical order
    combinations: str  # expression of those that are valid, in canonical order

    @cached_property
    def order(self) -> dict[str, int]:
        """Kind -> position in canonical order."""
        return {kind: place for place, kind in enumerate(self.most)}

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """An expression with one named group per kind."""
        text = "|".join(f"(?P<{kind}>(?:{KINDS[kind]})$)" for kind in self.most)
        return re.compile(text or "(?!)")

    @cached_property
    def together(self) -> re.Pattern[str]:
        return re.compile(self.combinations)


class Reading(NamedTuple):
    """A parsed opcode."""

    name: str  # "mad.lo"; only the first word if the instruction is unknown
    opcode: tuple[str, ...]  # in canonical order; unchanged if invalid
    problem: str  # why the opcode is invalid; "" if it is valid


def _combinations() -> dict[str, str]:
    """Name -> regular expression of its valid combinations of modifiers."""
    found: dict[str, list[str]] = {}
    for line in COMBINATIONS.split("\n"):
        names, _, rest = line.partition(": ")
        text = Template(rest).substitute(PARTS).replace(".", r"\.")
        for name in names.split():
            found.setdefault(name, []).append(text)
    return {name: "|".join(texts) for name, texts in found.items()}


def _row(kinds: str, together: str = ".*") -> Row:
    counts = (kind.partition("*") for kind in kinds.split())
    return Row({kind: int(count or 1) for kind, _, count in counts}, together)


def _rows() -> dict[str, Row]:
    combinations = _combinations()
    lines = (line.partition(":") for line in SYNTAX.split("\n"))
    return {
        name: _row(kinds, combinations.get(name, ".*"))
        for names, _, kinds in lines
        for name in names.split()
    }


ROWS = _rows()
PLAIN = _row("type")


def name_of(opcode: tuple[str, ...]) -> str:
    """The instruction name of an opcode: its longest prefix in ROWS, or the first word."""
    longest = opcode[0]
    for count in range(2, len(opcode) + 1):
        name = ".".join(opcode[:count])
        longest = name if name in ROWS else longest
    return longest


@cache
def read_opcode(opcode: tuple[str, ...]) -> Reading:
    """Parse an opcode and put its modifiers into canonical order."""
    name = name_of(opcode)
    if name in ROWS:
        return _read(name, ROWS[name], opcode)
    if name in ABSENT:
        return Reading(name, opcode, ABSENT[name])
    found = _read(name, PLAIN, opcode)
    if found.problem:
        return found._replace(problem="the emulator does not implement it")
    return found


def _read(name: str, row: Row, opcode: tuple[str, ...]) -> Reading:
    words = opcode[name.count(".") + 1 :]
    kinds = []
    for word in words:
        found = row.pattern.match(word)
        if found is None or found.lastgroup is None:
            return Reading(name, opcode, f"{name} does not take .{word} here")
        kinds.append(found.lastgroup)
    if "type" in row.order and "type" not in kinds:
        return Reading(name, opcode, f"{name} needs a type")
    for kind, most in row.most.items():
        if kinds.count(kind) > most:
            same = ", ".join(f".{w}" for w, k in zip(words, kinds, strict=True) if k == kind)
            return Reading(name, opcode, f"{name} takes at most {most} of {same}")
    places = sorted(range(len(words)), key=lambda k: row.order[kinds[k]])
    ordered = [words[k] for k in places]
    if not row.together.fullmatch("".join(f".{word}" for word in ordered)):
        return Reading(name, opcode, f"there is no {'.'.join(opcode)} on Hopper")
    return Reading(name, (*name.split("."), *ordered), "")
