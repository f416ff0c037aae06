"""Prove that a rewritten basic block of a cubin computes what the old one did.

Both blocks are executed symbolically. Each register, predicate and uniform register that may be
read later must have the same value, and all other instructions must have the same operands, in the
same order. The block must lead to the same addresses. Its waits and stall counts must let every
load and every result arrive before its use. All bytes outside the block must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from gemmlab.cubin import tools
from gemmlab.cubin.code import Block, Code, Instruction, read
from gemmlab.cubin.control import decode
from gemmlab.cubin.elf import sections
from gemmlab.cubin.registers import effects, granted, live
from gemmlab.cubin.values import NAMED, State, Values, is_ffma, is_jump, is_load
from gemmlab.errors import CompileError

# Besides FFMA, LDS.128, register copies and branches: arithmetic of fixed latency.
_ARITHMETIC = frozenset(
    {"IADD3", "IMAD", "ISETP", "LOP3", "MOV", "NOP", "PLOP3", "VIADD"}
    | {"UIADD3", "UISETP", "UMOV", "UPLOP3"}
)
# Latencies: FFMA's is known, that of the others an upper bound.
_FFMA_CYCLES, _CYCLES = 4, 14


@lru_cache(maxsize=4)  # the code that a pass reads is read again by its proof, and for its stalls
def disassemble(cubin: bytes, entry: str) -> Code:
    """Return a kernel's instructions, with their bits. Callers must not change them."""
    return read(tools.sass(cubin, entry, words=True))


def refused(reason: str) -> CompileError:
    return CompileError(f"the inner loop cannot be rewritten: {reason}")


def section(cubin: bytes, entry: str) -> tuple[int, int]:
    """Return offset and size in bytes of a kernel's instructions in a cubin."""
    for name, offset, length in sections(cubin):
        if name == f".text.{entry}":
            return offset, length
    raise refused(f"the cubin has no section .text.{entry}")


def prove(old: bytes, new: bytes, entry: str) -> None:
    """Raise CompileError unless the two cubins compute the same, as far as the proof can show.

    They may differ in one basic block of the kernel `entry`, of FFMAs, LDS.128 and arithmetic.
    """
    if old == new:
        return
    before = disassemble(old, entry)
    number = _changed(old, new, entry, before)
    block, after = before.blocks[number], disassemble(new, entry)
    rewritten = next((x for x in after.blocks if x.first == block.first), None)
    if rewritten is None or rewritten.last > block.last:
        raise refused("it starts or ends elsewhere")
    values = Values()
    of_old, of_new = State(), State()
    first = before.instructions[block.first : block.last]
    second = after.instructions[rewritten.first : rewritten.last]
    others = values.run(_known(first), of_old)
    if values.run(_known(second), of_new) != others:
        raise refused("instructions besides FFMAs and loads are not the same")
    names: set[int | str] = {name for name in (*of_old, *of_new) if isinstance(name, str)}
    names |= live(before)[1][number]
    if wrong := [x for x in names if values.get(of_old, x) != values.get(of_new, x)]:
        raise refused(f"{', '.join(map(str, wrong))} would not have the same value after it")
    most = granted(before)
    if beyond := [x for x in of_new if isinstance(x, int) and most <= x]:
        raise refused(f"R{min(beyond)} to R{max(beyond)} do not exist")
    if _exits(before, block) != _exits(after, rewritten):
        raise refused("it would lead elsewhere")
    _check_times(second)


def _changed(old: bytes, new: bytes, entry: str, code: Code) -> int:
    """Return the number of the only block in which the cubins differ."""
    start, _ = section(old, entry)
    different = next(i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y)
    for number, block in enumerate(code.blocks):
        first, last = start + 16 * block.first, start + 16 * block.last
        if first <= different < last:
            if len(old) == len(new) and old[last:] == new[last:]:
                return number
            break
    raise refused("more than a block has changed")


def _known(code: Iterable[Instruction]) -> list[Instruction]:
    code = list(code)
    strange = {
        one.root
        for one in code
        if not (is_ffma(one) or is_load(one) or one.root in _ARITHMETIC or one.root == "BRA")
    }
    if strange:
        raise refused(f"it has {', '.join(sorted(strange))}")
    return code


def _exits(code: Code, block: Block) -> list[int]:
    """Return the instructions that may be executed after a block, following jumps."""
    last = code.instructions[block.last - 1]
    found = [_behind_jumps(code, code.labels[last.target])] if last.target else []
    return found if is_jump(last) else [*found, _behind_jumps(code, block.last)]


def _behind_jumps(code: Code, index: int) -> int:
    seen = set[int]()
    while is_jump(one := code.instructions[index]) and one.target and index not in seen:
        seen.add(index)
        index = code.labels[one.target]
    return index


def _check_times(code: Sequence[Instruction]) -> None:
    """Check that no instruction is issued before its inputs are ready.

    A load's registers, and those of its address, are free after a wait for its scoreboard; a result
    of fixed latency is ready after that many cycles.
    """
    if decode(code[0].word).waits != tuple(range(6)):
        raise refused("it does not wait for the loads before it")
    loading: dict[int | str, int | None] = {}  # register -> scoreboard of the load that writes it
    addresses: dict[int | str, int | None] = {}
    ready: dict[int | str, int] = {}  # name -> cycle
    cycle = 0
    for one in code:
        control = decode(one.word)
        reads, writes = effects(one)
        names = {*reads, *writes, *NAMED.findall(f"{one.guard} {one.operands}")}
        for held in (loading, addresses):
            for name in [name for name, board in held.items() if board in control.waits]:
                del held[name]
        early = (loading.keys() & names) | (addresses.keys() & writes)
        early |= {name for name in names if ready.get(name, 0) > cycle}
        if early:
            raise refused(f"{one} comes too early for {', '.join(map(str, early))}")
        if is_load(one):
            loading |= dict.fromkeys(writes, control.write_barrier)
            addresses |= dict.fromkeys(reads, control.write_barrier)
        elif one.root != "BRA":
            late = cycle + (_FFMA_CYCLES if is_ffma(one) else _CYCLES)
            ready |= dict.fromkeys(writes if is_ffma(one) else names, late)
        cycle += control.stall
    if loading or max(ready.values(), default=0) > cycle:
        raise refused("it ends before its results are ready")
