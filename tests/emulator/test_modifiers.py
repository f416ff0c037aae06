"""Modifiers in any order that ptxas accepts are normalized; invalid ones are errors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from forms import FORMS, Form

from gemmlab.compile.ptx import assemble, describe
from gemmlab.emulator import run
from gemmlab.emulator.translation.translate import translate
from gemmlab.errors import CompileError, UnsupportedInstructionError
from gemmlab.ptx.modifiers import PLAIN, ROWS

REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %q<32>; "
    ".reg .f32 %f<16>; .reg .f64 %g<8>; .reg .b128 %z<3>; .shared .align 128 .b8 s[1024];"
)

SELECT = "selp.b32 %r3, 7, 8, %p2;"


def module(lines: list[str]) -> str:
    """Return a module whose lines start at line 6 of the PTX."""
    head = [".version 8.6", ".target sm_90a", ".address_size 64", ".entry k() {", REGISTERS]
    return "\n".join([*head, *lines, "ret; }"])


def misplaced(form: Form) -> list[list[str]]:
    """Return spellings with a word of the name among the modifiers, which ptxas rejects."""
    first, *rest = form.name.split(".")
    if not rest or not form.words or ".".join([first, form.words[0]]) in ROWS:
        return []
    return [[form.words[0], *rest, *form.words[1:]]]


def test_all_that_can_be_ordered_has_a_sample():
    sampled = {ROWS.get(form.name, PLAIN).pattern for form in FORMS}
    missing = [name for name, row in ROWS.items() if row.pattern not in sampled]
    assert [name for name in missing if sum(ROWS[name].most.values()) > 1] == []


@pytest.mark.parametrize("form", FORMS, ids=lambda f: ".".join(f.opcode))
def test_one_instruction_in_any_order(form):
    """All equivalent orders parse to the same instruction, which the emulator executes."""
    texts = {form.text(words) for words in form.orders(24)}
    program = translate(module([form.text(form.words), *texts]))
    opcodes = {i.opcode for i in program.function.instructions[:-1]}
    assert opcodes == {form.opcode}
    assert "m.unsupported" not in program.source


@pytest.mark.parametrize("form", [f for f in FORMS if misplaced(f)], ids=lambda f: f.name)
def test_the_words_of_a_name_stand_in_front(form):
    for words in misplaced(form):
        program = translate(module([Form(form.name.split(".")[0], (), form.operands).text(words)]))
        assert "m.unsupported" in program.source


def test_the_assembler_takes_the_same():
    """ptxas accepts every order and rejects a word of the name in another place."""
    taken = [form.text(words) for form in FORMS for words in [form.words, *form.orders(3)]]
    assert assemble(describe(module(taken)), "sm_90a")
    refused = [
        Form(form.name.split(".")[0], (), form.operands).text(words)
        for form in FORMS
        for words in misplaced(form)
    ]
    with pytest.raises(CompileError) as error:
        assemble(describe(module(refused)), "sm_90a")
    lines = {int(line) for line in re.findall(r"line (\d+); error", error.value.log)}
    assert lines == set(range(6, 6 + len(refused)))


@pytest.mark.parametrize("tier", ["numpy", "native"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("and.b32 %r2, %r9, 3; match.sync.any.b32 %r3, %r2, -1;", [0x11111111, 0x22222222]),
        ("and.b32 %r2, %r9, 3; match.b32.sync.all %r3, %r2, -1;", [0, 0]),
        ("setp.lt.u32 %p1, %r9, 5; vote.b32.ballot.sync %r3, %p1, -1;", [31, 31]),
        ("shfl.bfly.b32.sync %r3, %r9, 1, 31, -1;", [1, 0]),
        ("redux.max.sync.u32 %r3, %r9, -1;", [31, 31]),
        ("setp.ne.u32 %p1, %r9, 0; setp.and.u32.gt %p2, 3, %r9, %p1; " + SELECT, [8, 7]),
        ("setp.ne.u32 %p1, %r9, 0; lop3.b32.or %r3|%p2, %r9, 0, 0, 0xf0, %p1;", [0, 1]),
        ("setp.ne.u32 %p1, %r9, 0; set.le.and.u32.u32 %r3, %r9, 1, %p1;", [0, 0xFFFFFFFF]),
        ("setp.eq.u32 %p1, %r9, 0; lop3.and.b32 _|%p2, %r9, 0, 0, 0xf0, !%p1; " + SELECT, [8, 7]),
    ],
)
def test_what_other_orders_compute(line, wanted, tier):
    assert computed(line, tier)[:2].tolist() == wanted


def test_a_comparison_of_halves_joined_with_a_predicate():
    line = "setp.ne.u32 %p1, %r9, 0; set.eq.f16x2.xor.f16x2 %r3, %r9, 0, %p1;"
    assert computed(line, "numpy")[:2].tolist() == [0x3C003C00, 0x00003C00]


def computed(line, tier):
    """Return %r3 of each lane after `line`, with the lane's index in %r9."""
    out = np.zeros(32, np.uint32)
    store = "mad.wide.u32 %q1, %r9, 4, %q0; st.u32.global [%q1], %r3;"
    body = ["ld.u64.param %q0, [p];", "mov.u32 %r9, %tid.x;", line, store]
    text = module(body).replace("k()", "k(.param .u64 p)")
    run(text, "k", (1, 1, 1), (32, 1, 1), [out], tier=tier)
    return out


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("match.sync.b32 %r1, %r2, %r3", "unknown combination"),
        ("match.any.all.sync.b32 %r1, %r2, %r3", "at most 1 of .any, .all"),
        ("match.any.b32 %r1, %r2, %r3", "unknown combination"),
        ("match.any.sync.u32 %r1, %r2, %r3", "unknown combination"),
        ("vote.sync.ballot.pred %p1, %p2, %r3", "unknown combination"),
        ("vote.any.pred %p1, %p2, %r3", "unknown combination"),
        ("shfl.bfly.b32 %r1, %r2, %r3, %r4, %r5", "unknown combination"),
        ("redux.sync.add.b32 %r1, %r2, %r3", "unknown combination"),
        ("elect.sync.aligned %r1|%p1, %r2", "does not take .aligned"),
        ("add.s32.f32 %r1, %r2, %r3", "at most 1 of .s32, .f32"),
        ("add.rn.rz.f32 %f1, %f2, %f3", "at most 1 of .rn, .rz"),
        ("add.cc.f32 %f1, %f2, %f3", "unknown combination"),
        ("mad.lo.cc.f32 %f1, %f2, %f3, %f4", "unknown combination"),
        ("dp4a.u32 %r1, %r2, %r3, %r4", "unknown combination"),
        ("cvt.f32 %f1, %f2", "no cvt.f32 on Hopper"),
        ("cvt.b32.f32 %r1, %f2", "no cvt.b32.f32 on Hopper"),
        ("cvt.pack.sat %r1, %r2, %r3", "needs a type"),
        ("cvt.pack.s8.s32.b32 %r1, %r2, %r3, %r4", "unknown combination"),
        ("mov.f16 %h1, 0f437F0000", "unknown combination"),
        ("setp.lt.add.s32 %p1, %r1, %r2, %p2", "no setp.lt.add.s32 on"),
        ("setp.lt.ftz.s32 %p1, %r1, %r2", "no setp.lt.ftz.s32 on"),
        ("set.lt.and.u32.f32 %r1, %f1, %f2", "unknown combination"),
        ("fence.acq_rel.sc.gpu", "at most 1 of .acq_rel, .sc"),
        ("fence.here", "does not take .here"),
        ("fence.gpu [%q1], 128", "unknown combination"),
        ("fence.acquire", "no fence.acquire on"),
        ("griddepcontrol", "no griddepcontrol on"),
        ("membar.gpu", "no membar.gpu on"),
        ("discard.global [%q1], 128", "no discard.global on"),
        ("bar.red.or.b32 %r1, 0, %p1", "no bar.red.or.b32 on"),
        ("nanosleep.f32 5", "no nanosleep.f32 on"),
        ("ld.gpu.u32 %r1, [%q1]", "no ld.gpu.u32 on"),
        ("ld.shared.nc.u32 %r1, [%r2]", "no ld.shared.nc.u32 on"),
        ("ld.global.pred %p1, [%q1]", "no ld.global.pred on"),
        ("ld.global.b128 %z1, [%q1]", "types of 128 bits"),
        ("mov.b128 %z1, %z2", "types of 128 bits"),
        ("ld.global.u8 %p1, [%q1]", r"%p1 is a \.pred register"),
        ("vote.all.sync.pred %r1, %p2, -1", r"%r1 is a \.b32 register"),
        ("selp.b32 %r1, %r2, %r3, %r4", r"%r4 is a \.b32 register"),
        ("setp.lt.f16 %p1|%p2, %h1, %h2", "packed halves have one"),
        ("setp.hi.s32 %p1, %r1, %r2", "no setp.hi.s32 on"),
        ("set.lt.b32.f32 %r1, %f1, %f2", "no set.lt.b32.f32 on"),
        ("cvt.rn.s32.f32 %r1, %f2", "no cvt.rn.s32.f32 on"),
        ("cvt.f32.s32 %f1, %r2", "no cvt.f32.s32 on"),
        ("ex2.approx.ftz.f16 %h1, %h2", "no ex2.approx.ftz.f16 on"),
        ("atom.global.add.s64 %q1, [%q2], %q3", "unknown combination"),
        ("prefetch.global.L3 [%q1]", "does not take .L3"),
        ("cvta.u64 %q1, %q2", "unknown combination"),
        ("cvta.shared.u32 %r1, %r2", "unknown combination"),
        ("wgmma.fence.sync", "unknown combination"),
        ("ldmatrix.m8n8.x1.shared.b16 {%r1}, [%r2]", "unknown combination"),
        ("bar.red.popc.u32 %r1, 0", "unknown combination"),
        ("barrier.cluster.sync", "does not take .cluster"),
        ("lop3.b32 %r1, %r2, %r3, %r4, %r5", "must be a constant"),
        ("frobnicate.u32 %r1, %r2", "does not implement"),
        ("frobnicate.sync.all %r1, %r2", "does not implement"),
        ("selp.sat.s32 %r1, %r2, %r3, %p1", "does not implement"),
    ],
)
def test_nothing_is_taken_for_what_it_is_not(line, problem):
    with pytest.raises(UnsupportedInstructionError, match=problem):
        run(module([f"{line};"]), "k", (1, 1, 1), (32, 1, 1), [])
