"""Which scalar shared loads the assembler joins into one wide load.

ptxas turns neighbouring 32-bit shared loads of a basic block into LDS.64 and LDS.128 when it can
prove the alignment; nvcc's PTX leaves that to it. Counting each PTX load by itself would then
report four times the hardware's shared requests. The proof used here is of the same kind: the
largest power of two that divides a register, over all places that write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemmlab.emulator.ptx.ir import Function, Imm, Instruction, Memory, Operand, Reg, Symbol, Vector

MOST = 1 << 20  # alignment of zero
# Instructions that keep some alignment, and how many operands they read.
NUM_SOURCES = {"mov": 1, "cvt": 1, "cvta": 1, "mad": 3, "selp": 3}
NUM_SOURCES |= dict.fromkeys(("add", "sub", "and", "or", "xor", "mul", "shl"), 2)


def wide_loads(
    function: Function, spans: Iterable[tuple[int, int]], shared: Mapping[str, int]
) -> dict[int, list[int]]:
    """Groups of 2 or 4 loads to execute as one, by the index of the first.

    spans: first and last instruction of each basic block; shared: offsets of the shared variables.
    """
    alignment = alignments(function, shared)
    groups: dict[int, list[int]] = {}
    for first, last in spans:
        for run in _runs(function.instructions, first, last):
            groups.update(_join(function.instructions, run, alignment, shared))
    return groups


def alignments(function: Function, shared: Mapping[str, int]) -> dict[str, int]:
    """For each register the power of two that divides all values it can hold."""
    known: dict[str, int] = {}
    writers: dict[str, list[Instruction]] = {}
    for instruction in function.instructions:
        for target in _written(instruction):
            writers.setdefault(target, []).append(instruction)
            known[target] = MOST
    changed = True
    while changed:
        changed = False
        for name, instructions in writers.items():
            value = min(_result(i, known, shared) for i in instructions)
            if value < known[name]:
                known[name], changed = value, True
    return known


def _divisor(value: int) -> int:
    return min(value & -value, MOST) if value else MOST


def _of(operand: Operand, known: Mapping[str, int], shared: Mapping[str, int]) -> int:
    if isinstance(operand, Reg):
        return known.get(operand.name, 1)
    if isinstance(operand, Imm) and operand.width == 0:
        return _divisor(operand.value)
    if isinstance(operand, Symbol) and operand.name in shared:
        return _divisor(shared[operand.name] + operand.offset)
    return 1


def _result(i: Instruction, known: Mapping[str, int], shared: Mapping[str, int]) -> int:
    """What divides the result of an integer instruction; 1 where nothing is known."""
    sources = [_of(o, known, shared) for o in i.operands[1:]]
    if isinstance(i.operands[0], Vector) or len(sources) != NUM_SOURCES.get(i.root):
        return 1
    match i.root:
        case "mov" | "cvt" | "cvta":
            return sources[0]
        case "add" | "sub" | "or" | "xor":
            return min(sources)
        case "and":
            return max(sources)
        case "mul" if {"lo", "wide"} & {*i.modifiers}:
            return min(sources[0] * sources[1], MOST)
        case "mad" if {"lo", "wide"} & {*i.modifiers}:
            return min(sources[0] * sources[1], sources[2], MOST)
        case "shl" if isinstance(i.operands[2], Imm):
            count = i.operands[2].value % (1 << 32)
            return min(sources[0] << min(count, 20), MOST)
        case "selp":
            return min(sources[:2])
    return 1


def _written(instruction: Instruction) -> list[str]:
    if not instruction.operands or instruction.root in ("st", "bra", "bar", "red"):
        return []
    target = instruction.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    return [x.name for x in items if isinstance(x, Reg)]


def _reads(operands: Iterable[Operand], register: Reg) -> bool:
    """Whether a register stands among operands, also inside an address or a vector."""
    for o in operands:
        inner = o.items if isinstance(o, Vector) else [o.base if isinstance(o, Memory) else o]
        if register in inner:
            return True
    return False


def _is_scalar_load(i: Instruction) -> bool:
    return (
        i.root == "ld"
        and i.guard is None
        and i.modifiers[:1] in (("shared",), ("shared::cta",))
        and len(i.operands) == 2
        and i.modifiers[1:] in (("f32",), ("b32",), ("u32",), ("s32",))
        and isinstance(i.operands[0], Reg)
        and isinstance(i.operands[1], Memory)
    )


def _runs(code: list[Instruction], first: int, last: int) -> list[list[int]]:
    """Loads off one base register with nothing between them that could change what they read."""
    runs: dict[object, list[int]] = {}
    closed: list[list[int]] = []
    for index in range(first, last):
        instruction = code[index]
        if instruction.root in ("st", "atom", "red", "bar", "barrier", "cp"):
            closed += runs.values()
            runs = {}
        elif _is_scalar_load(instruction):
            assert isinstance(instruction.operands[1], Memory)
            runs.setdefault(instruction.operands[1].base, []).append(index)
        for name in _written(instruction):
            closed += [run for base, run in runs.items() if _names(base) == name]
            runs = {base: run for base, run in runs.items() if _names(base) != name}
    return [*closed, *runs.values()]


def _names(base: object) -> str | None:
    return base.name if isinstance(base, Reg) else None


def _join(
    code: list[Instruction],
    run: list[int],
    alignment: Mapping[str, int],
    shared: Mapping[str, int],
) -> dict[int, list[int]]:
    by_offset: dict[int, int] = {}
    base_alignment = 1
    for index in run:
        memory = code[index].operands[1]
        assert isinstance(memory, Memory)
        base_alignment = _of(memory.base, alignment, shared)
        by_offset.setdefault(memory.offset, index)
    groups: dict[int, list[int]] = {}
    used: set[int] = set()
    for words in (4, 2):
        for offset in sorted(by_offset):
            members = [by_offset.get(offset + 4 * k, -1) for k in range(words)]
            aligned = min(base_alignment, _divisor(offset)) % (4 * words) == 0
            if (
                aligned
                and -1 not in members
                and not used & set(members)
                and _movable(code, members)
            ):
                groups[min(members)] = members
                used |= set(members)
    return groups


def _movable(code: list[Instruction], members: list[int]) -> bool:
    """Whether all loads may happen where the first one stands."""
    first = min(members)
    for index in members:
        target = code[index].operands[0]
        assert isinstance(target, Reg)
        for between in code[first:index]:
            if target.name in _written(between) or _reads(between.operands, target):
                return False
    return True
