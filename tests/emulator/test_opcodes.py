"""The table of opcodes and the sets derived from it."""

from gemmlab.emulator.translation.isa import FORMS
from gemmlab.ptx import opcodes
from gemmlab.ptx.modifiers import ABSENT, ROWS


def test_the_table_names_no_others_than_instructions():
    assert opcodes.OPCODES.keys() <= {name.split(".")[0] for name in ROWS} | ABSENT.keys()


def test_instructions_that_one_expression_computes_are_arithmetic():
    assert all(opcodes.is_arithmetic(name.split(".")[0]) for name in FORMS)


def test_what_is_not_emulated_is_not_taken_for_arithmetic():
    assert not any(map(opcodes.is_arithmetic, (*ABSENT, "ld", "bar", "shfl", "bra", "wgmma")))


def test_derived_sets():
    assert {"ld", "ldu", "ldmatrix"} == opcodes.LOADS
    assert {"ld", "ldu", "st", "atom", "red"} == opcodes.SCALAR_ACCESSES
    assert {"atom"} == opcodes.FETCHES
    assert {"bra", "brx", "ret", "exit", "trap"} == opcodes.ENDS
    assert opcodes.COUNTERS["ldmatrix"] == "ldsm"
    assert opcodes.FLOPS["fma"] == 2 and "mad" not in opcodes.FLOPS
    arithmetic = [o for o in opcodes.OPCODES.values() if o.is_arithmetic]
    assert all(o.has_result and not o.access and not o.terminator for o in arithmetic)
