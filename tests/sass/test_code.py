"""Parsing of nvdisasm's text: lines of PTX, basic blocks, control flow."""

import pytest

from gemmlab.cubin.code import LEAVE, read


def text(*rows):
    """Return nvdisasm-like text: "12: @P0 BRA `(.L_x_0)" belongs to PTX line 12, "name:" is a
    label."""
    lines, address = [], 0
    for row in rows:
        if row.endswith(":"):
            lines.append(row)
            continue
        line, _, code = row.partition(": ")
        if line:
            lines.append(f'\t//## File ".nv_debug_ptx_txt", line {line}')
        lines.append(f"        /*{address:04x}*/                   {code} ;")
        address += 16
    return "\n".join(lines)


def edges(code):
    return [[(edge.target, edge.cold) for edge in block.edges] for block in code.blocks]


def test_instructions_know_their_line_of_ptx():
    code = read(text("7: LDC R1, c[0x0][0x28]", ": S2R R0, SR_TID.X", "9: @!P0 EXIT", ": EXIT"))
    assert [one.line for one in code.instructions] == [7, 7, 9, 9]
    assert [one.address for one in code.instructions] == [0, 16, 32, 48]
    guarded = code.instructions[2]
    assert (guarded.guard, guarded.opcode, guarded.conditional) == ("!P0", "EXIT", True)
    assert str(guarded) == "@!P0 EXIT"


def test_a_loop_with_padding_behind_it():
    code = read(
        text(
            "1: MOV R0, RZ",
            ".L_x_1:",
            "2: IADD3 R0, R0, 0x1, RZ",
            ": @P0 BRA `(.L_x_1)",
            ": EXIT",
            ".L_x_2:",
            ": BRA `(.L_x_2)",
            ": NOP",
        )
    )
    assert edges(code) == [[(1, False)], [(1, False), (2, False)], [(LEAVE, False)]]
    assert [len(code.inside(block)) for block in code.blocks] == [1, 2, 1]


@pytest.mark.parametrize(
    "branch", ["@P0 BRA `(.L_x_1)", "BRA P1, `(.L_x_1)", "@!P0 BRA !P1, `(.L_x_1)"]
)
def test_a_branch_may_ask_two_predicates(branch):
    code = read(text(f"1: {branch}", ": MOV R0, RZ", ".L_x_1:", ": EXIT"))
    assert code.instructions[0].conditional
    assert edges(code)[0] == [(2, False), (1, False)]


def test_a_routine_is_left_for_where_it_was_called():
    code = read(
        text(
            "1: @P0 BRA `(.L_x_1)",
            ": CALL.REL.NOINC `($__internal_0_$__div)",
            ".L_x_1:",
            "2: CALL.REL.NOINC `($f$helper)",
            ": EXIT",
            "$__internal_0_$__div:",
            ": RET.REL.NODEC R4 `(f)",
            "$f$helper:",
            "5: RET.REL.NODEC R4 `(f)",
        )
    )
    # ptxas's routine is a slow path; neither its lines nor its position reveal how often it runs.
    assert edges(code) == [
        [(2, False), (1, False)],
        [(4, True)],
        [(5, False)],
        [(LEAVE, False)],
        [(2, False)],
        [(3, False)],
    ]
    assert [code.instructions[code.blocks[i].first].line for i in (4, 5)] == [None, 5]


def test_an_indirect_branch_leads_to_what_nothing_else_leads_to():
    code = read(
        text(
            "1: @P0 BRA `(.L_x_1)",
            ": BRX R8 -0x30",
            "2: MOV R0, RZ",
            ": BRA `(.L_x_1)",
            "3: MOV R0, 0x1",
            ".L_x_1:",
            ": EXIT",
            ".L_x_2:",
            ": BRA `(.L_x_2)",
        )
    )
    assert edges(code)[1] == [(2, False), (3, False), (4, True)]


def test_nothing_at_all():
    assert read("").blocks == []
