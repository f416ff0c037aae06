"""What a launch computes that no prediction needs.

A prediction needs the paths of warps, the addresses of accesses and what barriers wait for. Most
arithmetic of a matrix product decides none of these, so the emulator need not do it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gemmlab.emulator.translation.liveness import results, sources
from gemmlab.ptx.ir import Function, Instruction, Memory, Vector, registers
from gemmlab.ptx.opcodes import ATOMICS, LOADS, OPCODES, STORES, is_arithmetic

_NEVER_WRITTEN = {"param", "const"}  # state spaces
_PRODUCTS = frozenset(name for name, of in OPCODES.items() if of.product_lanes)
Names = Sequence[tuple[str, ...]]  # of registers, by instruction


def unneeded(function: Function) -> frozenset[int]:
    """Return the arithmetic instructions on which no way, no address and no wait depends.

    Sums of tensor cores are not computed, so nothing depends on them or their operands. Other
    values that are stored are needed if a value that decides something is loaded from memory.
    Kernels without bulk copies and clusters are left whole: they share native code with other runs.
    """
    code = function.instructions
    if not any("bulk" in one.opcode or "cluster" in one.opcode for one in code):
        return frozenset()
    written, read = [*map(results, code)], [tuple(sources(one)) for one in code]
    writers = defaultdict[str, list[int]](list)
    for i, names in enumerate(written):
        for name in names:
            writers[name].append(i)
    needed = set[str]()
    _add(needed, {name for one in code for name in _deciding(one)}, writers, read)
    from_memory = {
        name
        for one, names in zip(code, written, strict=True)
        if one.root in LOADS | ATOMICS and _NEVER_WRITTEN.isdisjoint(one.opcode)
        for name in names
    }
    if not needed.isdisjoint(from_memory):
        stored = {x for i, one in enumerate(code) if one.root in STORES for x in read[i]}
        _add(needed, stored - _sums(code, written, read), writers, read)
    return frozenset(
        i
        for i, names in enumerate(written)
        if names and is_arithmetic(code[i].root) and needed.isdisjoint(names)
    )


def _deciding(one: Instruction) -> Iterator[str]:
    """The registers that an instruction needs even if its result is unused."""
    if one.guard is not None:  # the lanes that it predicates off are counted
        yield one.guard.reg.name
    if one.root in STORES:
        yield from registers(x for x in one.operands if isinstance(x, Memory))
    elif one.root in _PRODUCTS:
        yield from registers(x for x in one.operands if not isinstance(x, Vector))
    elif one.root == "shfl":
        yield from registers(one.operands[2:])
    elif not is_arithmetic(one.root):
        yield from sources(one)


def _add(
    needed: set[str], more: Iterable[str], writers: Mapping[str, list[int]], read: Names
) -> None:
    """Add registers, and those from which they are computed."""
    waiting = [*more]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            for i in writers.get(name, ()):
                waiting += read[i]


def _sums(code: Sequence[Instruction], written: Names, read: Names) -> set[str]:
    """The registers that depend on sums of tensor cores."""
    readers, waiting = defaultdict[str, list[int]](list), list[str]()
    for i, one in enumerate(code):
        if one.root in _PRODUCTS:
            waiting += written[i]
        elif is_arithmetic(one.root) or one.root == "shfl":
            for name in read[i]:
                readers[name].append(i)
    found = set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            for i in readers.get(name, ()):
                waiting += written[i]
    return found
