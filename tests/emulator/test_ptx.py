"""The parser: what it keeps of PTX text, and its errors for other text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import HEADER, ptx

from gemmlab.emulator.translation.translate import translate
from gemmlab.errors import GemmlabError, PtxSyntaxError, UnknownNameError
from gemmlab.ptx.ir import Imm, Memory, Module, Negated, Reg, Symbol, Vector
from gemmlab.ptx.lexer import tokenize
from gemmlab.ptx.parser import parse


def instructions(body: str, module: str = ""):
    return parse(ptx(body, module=module)).entry().instructions


def test_module_directives():
    module = parse(
        ".version 8.7 // comment\n.target sm_100a, debug\n/* two\nlines */.address_size 64\n"
        '.file 1 "a.cu", 1, 2\n.section .debug { .b8 1, 2 { } }\n'
        ".global .align 8 .b8 t[4] = {1, 2};"
        ".const .f32 h = 0f3F000000; .extern .shared .align 16 .b8 dyn[];"
        ".visible .entry k() .reqntid 32, 2 .minnctapersm 2 .maxnreg 64 { ret; } .entry other() { }"
    )
    assert (module.version, module.target, module.entries) == ("8.7", "sm_100a", ["k", "other"])
    k = module.entry("k")
    assert (k.reqntid, k.minnctapersm, k.maxnreg) == ((32, 2, 1), 2, 64)
    table, half, dynamic = module.variables
    assert (table.size, table.alignment, table.initial) == (4, 8, b"\1\2")
    assert (half.space, half.initial) == ("const", b"\0\0\0\x3f")
    assert (dynamic.space, dynamic.size) == ("shared", 0)
    with pytest.raises(UnknownNameError, match="k, other"):
        module.entry("missing")
    with pytest.raises(UnknownNameError, match="no entry named"):
        module.entry()


def test_parameters_keep_size_and_alignment():
    text = HEADER + (
        ".entry k(.param .u64 .ptr .global .align 16 a, .param .align 8 .b8 s[24], "
        ".param .f32 x) {}"
    )
    pointer, struct, scalar = parse(text).entry().parameters
    assert (pointer.size, pointer.alignment, pointer.is_pointer) == (8, 8, True)
    assert (struct.size, struct.alignment) == (24, 8)
    assert (scalar.size, scalar.alignment) == (4, 4)


@pytest.mark.parametrize(
    ("text", "value", "width"),
    [
        ("0", 0, 0),
        ("-17", -17, 0),
        ("0x1F", 31, 0),
        ("0X1fU", 31, 0),
        ("017", 15, 0),
        ("0b101", 5, 0),
        ("4294967295U", 2**32 - 1, 0),
        ("0f3F800000", 0x3F800000, 4),
        ("0d3FF0000000000000", 0x3FF0000000000000, 8),
        ("1.0", 0x3FF0000000000000, 8),
        ("-2.5e0", 0xC004000000000000, 8),
    ],
)
def test_literals(text, value, width):
    [mov] = instructions(f"mov.b64 %q1, {text};")
    assert mov.operands[1] == Imm(value, width)


def test_operands():
    code = instructions(
        "@!%p1 ld.global.v2.f32 {%f1, _}, [%q1+-16]; setp.lt.and.s32 %p1|%p2, %r1, %r2, !%p3;"
        "ld.shared.f32 %f1, [tile+4]; st.global.f32 [%q1], %f1; mov.u64 %q2, tile+8;",
        module=".shared .align 4 .b8 tile[64];",
    )
    load, compare, shared, _, move = code
    assert load.guard is not None and load.guard.negated
    assert load.operands == (
        Vector((Reg("%f1", "f32"), Symbol("_"))),
        Memory(Reg("%q1", "b64"), -16),
    )
    assert compare.operands[0] == Vector((Reg("%p1", "pred"), Reg("%p2", "pred")))
    assert compare.operands[3] == Negated(Reg("%p3", "pred"))
    assert shared.operands[1] == Memory(Symbol("tile"), 4)
    assert move.operands[1] == Symbol("tile", 8)


def test_scopes_hide_names_and_labels():
    code = instructions(
        "{ .reg .pred p; .reg .b32 t; L: mov.b32 t, 1; @p bra L; }"
        "{ .reg .pred p; .reg .b32 t; L: mov.b32 t, 2; { bra L; } }"
    )
    first, jump, second, inner = code
    assert first.operands[0] != second.operands[0]
    assert jump.operands != inner.operands


def test_call_scopes_are_parsed_and_expanded():
    text = HEADER + (
        ".func (.param .b32 r) twice(.param .b32 a) {.reg .b32 %r<3>;"
        "ld.param.b32 %r1, [a]; add.s32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;}"
        ".entry k() {.reg .b32 %r<9>; mov.b32 %r1, 3;"
        "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), twice, (x);"
        "ld.param.b32 %r2, [y]; } ret;}"
    )
    program = translate(text)
    assert not any(i.root == "call" for i in program.function.instructions)


def test_branch_tables_follow_scopes():
    function = parse(ptx("{ T: .branchtargets A, B; brx.idx %r0, T; A: ret; B: ret; }")).entry()
    assert [function.labels[x] for x in function.branch_targets["T"]] == [1, 2]


def test_loc_gives_the_source_line():
    code = instructions(".loc 1 7 3\nret;\n.loc 2 9 1, function_name L, inlined_at 1 5 2\nret;")
    assert [i.source for i in code] == ["file 1:7", "file 1:5"]
    nested = """.loc 1 5 2\nret;\n.loc 2 9 1, function_name L, inlined_at 1 5 2\nret;
        .loc 3 8 1, function_name M, inlined_at 2 9 1\nret;
        .loc 1 3 1, function_name N, inlined_at 1 5 2\nret;"""
    assert [i.source for i in instructions(nested)] == [f"file 1:{k}" for k in (5, 5, 5, 3)]
    template = """.loc 2 9 1, function_name L, inlined_at 1 5 2\nret;
        .loc 2 9 1, function_name M, inlined_at 2 9 1\nret;
        .loc 2 8 1, function_name N, inlined_at 2 9 1\nret;"""
    assert [i.source for i in instructions(template)] == ["file 1:5"] * 3
    text = ptx(".loc 1 7 3\nret;", module='.file 1 "kernel.cu"')
    assert parse(text).entry().instructions[0].source == "kernel.cu:7"


BODY_LINE = ptx("@").split("@")[0].count("\n") + 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.s32 %r1, %r2", "found '}'"),
        ("add.s32 %r1 %r2;", "expected ','"),
        ("add.s32 %r1, ?;", "unexpected character '\\?'"),
        ("bra NOWHERE;", "no label 'NOWHERE'"),
        ("bra;", "one label"),
        ("bra L, L; L: ret;", "one label"),
        ("brx.idx %r1, L; L: ret;", "table"),
        ("T: .branchtargets A; brx.idx %r1, T;", "no label 'A'"),
        ("T: .branchtargets A; A: brx.idx T, %r1;", "an index and a table"),
        ("L: L: ret;", "defined twice"),
        ("@%r1 ret;", "predicate register"),
        ("mov.pred %p1, !%r1;", "predicate register"),
        (".reg .b33 %x;", "unknown register type"),
        (".reg .b32 %x<a>;", "expected an integer"),
        (".shared .align 3 .b8 x[4];", "power of two"),
        (".shared .b8 x[4]", "expected ';'"),
        (".global .u32 x[1] = {1, 2};", "more initial values"),
        (".shared x[4];", "needs a type"),
        ("ld.global.f32 %f1, [%q1;", "expected ']'"),
        ("ld.global.f32 %f1, [%tid.x];", "cannot be an address"),
        ("mov.b32 %r1, {%r2;", "expected ','"),
        ("mov.b32 %r1, 09;", "expected a number"),
        ("12 %r1;", "expected an instruction"),
        ("{ ret;", "end"),
    ],
)
def test_errors_name_the_line(body, message):
    with pytest.raises(PtxSyntaxError, match=message) as error:
        parse(ptx(body))
    assert BODY_LINE <= error.value.line <= BODY_LINE + 1
    assert f"PTX line {error.value.line}: " in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "hello", "\n\n", ".version 8.0", HEADER + "}", HEADER + ".entry"]
)
def test_text_that_is_no_module(text):
    with pytest.raises(PtxSyntaxError):
        parse(text)


REAL = ptx(
    """
    .shared .align 16 .b8 tile[256]; .local .align 8 .b8 mine[16];
    .loc 1 4 2
    ld.param.u64 %q1, [p0]; cvta.to.global.u64 %q2, %q1; mov.u32 %r1, %tid.x;
    setp.ge.s32 %p1, %r1, 100; @%p1 bra DONE;
    mad.wide.s32 %q3, %r1, 4, %q2; mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3;
    LOOP: ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%q3+-16]; st.shared.f32 [%r4], %f1;
    bar.sync 0; fma.rn.f32 %f5, %f1, %f2, 0f3F800000; setp.lt.and.f32 %p2|%p3, %f5, %f1, !%p1;
    selp.b32 %r5, 1, -1, %p2; cvt.rn.f32.s32 %f6, %r5; mov.b64 {%r6, %r7}, %q3; lop3.b32 %r8, %r6,
    %r7, 5, 0x96; atom.global.add.u32 %r9, [%q2], 1; shfl.sync.down.b32 %r10|%p4, %r9, 1, 31, -1;
    { .reg .pred p; T: .branchtargets LOOP, OUT; setp.eq.u32 p, %r1, 1; @!p brx.idx %r1, T; OUT: }
    @%p2 bra.uni LOOP;
    DONE: ret;
    """,
    ["u64"],
    ".const .align 4 .f32 table[2] = {0f3F800000, 0f40000000};",
)


def words() -> list[str]:
    """Split text into tokens, each with its trailing white space, so that joining restores the
    text."""
    found, rest = [], REAL
    for _, word, _ in tokenize(REAL):
        before, _, rest = rest.partition(word)
        found += [before, word] if before else [word]
    return [*found, rest]


WORDS = words()
EDITS = st.tuples(
    st.sampled_from(["delete", "duplicate", "swap", "truncate"]),
    st.integers(0, len(WORDS) - 1),
    st.integers(0, len(WORDS) - 1),
)


def test_the_fuzzed_text_is_right():
    assert "".join(WORDS) == REAL
    assert isinstance(parse(REAL), Module)
    assert "m.unsupported" not in translate(REAL).source


@pytest.mark.slow
@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(EDITS, min_size=1, max_size=3))
def test_damaged_text_raises_nothing_but_our_errors(edits):
    text = list(WORDS)
    for kind, i, j in edits:
        i, j = i % len(text), j % len(text)
        if kind == "delete":
            text[i] = " "
        elif kind == "duplicate":
            text.insert(i, text[i] + " ")
        elif kind == "swap":
            text[i], text[j] = text[j], text[i]
        elif i > 20:
            del text[i:]
    with contextlib.suppress(GemmlabError):
        translate("".join(text))
