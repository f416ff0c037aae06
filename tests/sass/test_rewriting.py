"""The rewriting of an inner loop, and the proof that it changes no result."""

from dataclasses import replace

import pytest

from gemmlab import load
from gemmlab.compile.cute import compile_rung
from gemmlab.cubin import lint, loops, proof, reorder
from gemmlab.cubin.control import decode, with_control
from gemmlab.cubin.values import is_ffma, is_load
from gemmlab.errors import CompileError
from gemmlab.kernels import ladder

LAYOUTS = ("row", "course")


def lint_of(artifact):
    return lint.lint(loops.hot_loop(proof.disassemble(artifact.cubin, artifact.entry)))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_ffma_takes_a_cycle_and_results_alternate_between_the_banks(layout):
    before, after = (lint_of(load(name, layout=layout)) for name in ("copy-warps", "operand-reuse"))
    assert (after.ffmas, after.instructions) == (before.ffmas, before.instructions)
    assert after.fresh <= 64  # the first of two rows, in eight steps
    assert after.alike < 40 < 200 < before.alike
    assert after.register_bound > 0.94 > before.register_bound
    assert after.cycles == after.instructions < before.cycles


@pytest.fixture(scope="module")
def rewritten():
    """The kernel before and after: cubins, the entry, the instructions, the block's offset."""
    old = compile_rung(replace(ladder.find("operand-reuse"), rewrite=None))
    assert old.cubin is not None
    new = reorder.reorder(old.cubin, old.entry)
    code = proof.disassemble(new, old.entry)
    block = max(code.blocks, key=lambda b: sum(map(is_ffma, code.inside(b))))
    start = proof.section(new, old.entry)[0] + 16 * block.first
    return old.cubin, new, old.entry, code.instructions[block.first : block.last], start


def with_word(cubin, start, index, word):
    at = start + 16 * index
    return cubin[:at] + word.to_bytes(16, "little") + cubin[at + 16 :]


@pytest.mark.slow
def test_the_rung_is_the_rewritten_kernel_and_the_proof_accepts_it(rewritten):
    old, new, entry, _, _ = rewritten
    artifact = load("operand-reuse")
    assert artifact.cubin is not None
    start, size = proof.section(new, entry)
    own = proof.section(artifact.cubin, artifact.entry)[0]
    assert artifact.cubin[own : own + size] == new[start : start + size] != old[start:][:size]
    proof.prove(old, new, entry)
    proof.prove(old, old, entry)


def ffmas(block):
    return [i for i, one in enumerate(block) if is_ffma(one)]


# Per change: which instruction, and its new word.
CHANGES = {
    "another sum": lambda b: (ffmas(b)[300], b[ffmas(b)[300]].word ^ (1 << 16 | 1 << 64)),
    "another factor": lambda b: (ffmas(b)[5], b[ffmas(b)[5]].word ^ 1 << 24),
    "a sign": lambda b: (ffmas(b)[77], b[ffmas(b)[77]].word ^ 1 << 72),
    "a guard": lambda b: (ffmas(b)[90], b[ffmas(b)[90]].word & ~(7 << 12)),
    "a product left out": lambda b: (ffmas(b)[500], 0x000FC00000000000_0000000000007918),
    "a product twice": lambda b: (ffmas(b)[500], b[ffmas(b)[501]].word),
    "another address": lambda b: (20, next(x for x in b[20:] if is_load(x)).word),
    "no wait": lambda b: (ffmas(b)[0], with_control(b[ffmas(b)[0]].word, stall=1)),
    "no wait at the start": lambda b: (0, with_control(b[0].word, stall=1, write_barrier=0)),
    "another scoreboard": lambda b: (2, with_control(b[2].word, stall=1, write_barrier=5)),
    "a branch elsewhere": lambda b: (len(b) - 1, b[-1].word ^ 1 << 20),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_rewriting_fails_the_proof(rewritten, change):
    old, new, entry, block, start = rewritten
    wrong = with_word(new, start, *CHANGES[change](block))
    assert wrong != new
    with pytest.raises(CompileError):
        proof.prove(old, wrong, entry)


@pytest.mark.slow
def test_a_result_of_fixed_latency_must_be_there_in_time(rewritten):
    old, new, entry, block, start = rewritten
    at = max(i for i, one in enumerate(block) if one.root == "IADD3")
    moved = [one.word for one in block]
    moved[-1:-1] = [with_control(moved.pop(at), stall=1)]  # just before the branch
    words = b"".join(word.to_bytes(16, "little") for word in moved)
    with pytest.raises(CompileError, match="before its results are ready"):
        proof.prove(old, new[:start] + words + new[start + len(words) :], entry)


@pytest.mark.slow
def test_a_register_that_setmaxnreg_does_not_grant_is_refused(rewritten):
    old, new, entry, block, start = rewritten
    words = [one.word for one in block]
    quad = next(one.word >> 16 & 255 for one in block if is_load(one))  # the first fragment's
    for i, one in enumerate(block):
        for place in (16,) if is_load(one) else (24, 32):
            if (is_load(one) or is_ffma(one)) and quad <= one.word >> place & 255 < quad + 4:
                words[i] += (248 - quad) << place
    text = b"".join(word.to_bytes(16, "little") for word in words)
    with pytest.raises(CompileError, match="R248 to R251 do not exist"):
        proof.prove(old, new[:start] + text + new[start + len(text) :], entry)


@pytest.mark.slow
def test_nothing_but_one_block_may_change(rewritten):
    old, new, entry, block, start = rewritten
    behind = start + 16 * (len(block) + 20)
    for at in (behind, len(new) - 1):
        wrong = new[:at] + bytes([new[at] ^ 1]) + new[at + 1 :]
        with pytest.raises(CompileError, match="more than a block"):
            proof.prove(old, wrong, entry)


@pytest.mark.slow
def test_the_pass_fails_if_its_result_is_wrong(rewritten, monkeypatch):
    old, _, entry, _, _ = rewritten
    emit = reorder._emit

    def wrong(*given):
        words = emit(*given)
        words[400] ^= 1 << 32
        return words

    monkeypatch.setattr(reorder, "_emit", wrong)
    with pytest.raises(CompileError, match="would not have the same value"):
        reorder.reorder(old, entry)


@pytest.mark.parametrize(
    "name",
    ["naive", *(pytest.param(x, marks=pytest.mark.slow) for x in ("float4", "async-copy"))],
)
def test_another_kernel_is_refused(name):
    artifact = load(name)
    assert artifact.cubin is not None
    with pytest.raises(CompileError, match="the inner loop cannot be rewritten"):
        reorder.reorder(artifact.cubin, artifact.entry)


def test_control_bits_are_written_as_they_are_read():
    control = decode(with_control(0x7223, stall=3, waits=0b101, write_barrier=2, reuse=0b11))
    assert (control.stall, control.yields, control.waits) == (3, False, (0, 2))
    assert (control.write_barrier, control.read_barrier, control.reuse) == (2, None, (0, 1))
