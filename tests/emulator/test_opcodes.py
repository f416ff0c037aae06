"""The table of opcodes and the sets derived from it."""

from gemmlab.emulator.translation.isa import FORMS
from gemmlab.ptx import opcodes
from gemmlab.ptx.modifiers import ABSENT, ROWS


def test_the_table_has_a_row_for_every_instruction_and_no_others():
    roots = {name.split(".")[0] for name in ROWS}
    assert roots <= opcodes.OPCODES.keys() <= roots | ABSENT.keys()


def test_instructions_that_one_expression_computes_are_arithmetic():
    assert {name.split(".")[0] for name in FORMS} <= opcodes.ARITHMETIC


def test_derived_sets():
    assert {"ld", "ldu", "ldmatrix"} == opcodes.LOADS
    assert {"ld", "ldu", "st", "atom", "red"} == opcodes.SCALAR_ACCESSES
    assert {"atom"} == opcodes.FETCHES
    assert {"bra", "brx", "ret", "exit", "trap"} == opcodes.ENDS
    assert opcodes.COUNTERS["ldmatrix"] == "ldsm"
    assert opcodes.FLOPS["fma"] == 2 and "mad" not in opcodes.FLOPS
    arithmetic = [opcodes.OPCODES[name] for name in opcodes.ARITHMETIC]
    assert all(o.has_result and not o.access and not o.terminator for o in arithmetic)
