"""Trees in registers: chains of warp shuffles whose distance halves or doubles from step to step.

The distances are constants of the code, so the lanes that each shuffle pairs are known. How many
warps executed a chain is known from the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmlab.emulator.counters.rules import LANES
from gemmlab.emulator.program import Program
from gemmlab.emulator.synchronization.collectives import LANE, source_lanes
from gemmlab.emulator.trace import Trace
from gemmlab.ptx.ir import Imm, Instruction, Operand, Reg, Vector, registers

_LEAST = 3  # steps of a tree


@dataclass(frozen=True)
class Exchange:
    """One shuffle.

    `givers`: per lane the lane whose value it receives, None if that lane does not exist. `terms`:
    per lane the number of lanes whose first values are in its result. `needed`: per lane, whether
    the tree's result depends on what it computes here.
    """

    distance: int
    givers: tuple[int | None, ...]
    terms: tuple[int, ...]
    needed: tuple[bool, ...]
    source: str  # file:line


@dataclass(frozen=True)
class ShuffleTree:
    """`mode`: up, down or bfly; `operation`: the PTX that joins two values; `executions`: of the
    tree, by all warps of the launch; `copies`: how many such trees the code has."""

    mode: str
    operation: str
    exchanges: tuple[Exchange, ...]
    executions: int
    copies: int = 1


@dataclass(frozen=True)
class _Shuffle:
    instruction: Instruction
    index: int
    mode: str
    distance: int
    segment: int
    before: frozenset[int]  # shuffles that its value comes from


def shuffle_trees(trace: Trace) -> tuple[ShuffleTree, ...]:
    """Return the trees of a launch's code; the same one in several places counts as copies."""
    code = trace.program.function.instructions
    chains: list[list[_Shuffle]] = []
    for one in _shuffles(code):
        able = [chain for chain in chains if _continues(chain, one)]
        # Its value may come from other trees, too; the latest shuffle is of its own.
        chains.append([*max(able, key=lambda chain: chain[-1].index, default=[]), one])
    continued = {chain[-2].index for chain in chains if len(chain) > 1}
    found: dict[tuple[object, ...], ShuffleTree] = {}
    for chain in chains:
        if len(chain) < _LEAST or chain[-1].index in continued:
            continue
        executions = _executions(trace, chain[-1].index)
        if not executions:
            continue
        made = ShuffleTree(chain[0].mode, _joins(code, chain[0]), _exchanges(chain), executions)
        key = (made.mode, made.operation, made.exchanges)
        if same := found.get(key):
            made = replace(same, executions=executions + same.executions, copies=same.copies + 1)
        found[key] = made
    return tuple(found.values())


def _shuffles(code: Sequence[Instruction]) -> list[_Shuffle]:
    """Return the shuffles with constant distances, each with those that its value depends on."""
    constants: dict[str, int | None] = {}
    origins: dict[str, frozenset[int]] = {}
    found = []
    for index, i in enumerate(code):
        if not i.operands:
            continue
        target, *sources = i.operands
        written = list(registers([target])) if isinstance(target, Reg | Vector) else []
        read = frozenset[int]().union(*(origins.get(name, ()) for name in registers(sources)))
        match i.modifiers:
            case "sync", ("up" | "down" | "bfly") as mode, "b32" if i.name == "shfl":
                distance, segment = (_constant(o, constants) for o in i.operands[2:4])
                if distance is not None and segment is not None:
                    found.append(_Shuffle(i, index, mode, distance, segment, read))
                    read |= {index}
        for name in written:
            # A register that is set twice is not a constant.
            value = _constant(sources[0], constants) if i.root == "mov" else None
            constants[name] = None if name in constants else value
            origins[name] = origins.get(name, frozenset()) | read
    return found


def _constant(operand: Operand, known: dict[str, int | None]) -> int | None:
    match operand:
        case Imm():
            return operand.value
        case Reg():
            return known.get(operand.name)
    return None


def _continues(chain: Sequence[_Shuffle], one: _Shuffle) -> bool:
    last = chain[-1]
    ratio = {last.distance, one.distance}
    way = None if len(chain) == 1 else chain[0].distance < last.distance
    return (
        last.index in one.before
        and last.mode == one.mode
        and max(ratio) == 2 * min(ratio)
        and way in (None, last.distance < one.distance)
    )


def _joins(code: Sequence[Instruction], one: _Shuffle) -> str:
    """Return the opcode of the first instruction that uses the result of a shuffle."""
    [delivered, *_] = registers(one.instruction.operands[:1])
    for i in code[one.index + 1 :]:
        if delivered in registers(i.operands[1:]):
            return ".".join(i.opcode)
    return ""


def _executions(trace: Trace, index: int) -> int:
    program: Program = trace.program
    for block, warps in zip(program.blocks, trace.tally.warps.tolist(), strict=True):
        # The terminator of a block belongs to it.
        if block.first <= index <= max(block.last - 1, block.first):
            return int(warps)
    return 0


def _exchanges(chain: Sequence[_Shuffle]) -> tuple[Exchange, ...]:
    held = np.eye(LANES, dtype=bool)  # per lane: whose values it has
    made = []
    for one in chain:
        givers, inside = source_lanes(one.mode, LANE, np.int64(one.distance), np.int64(one.segment))
        held = np.where(inside[:, None], held | held[np.where(inside, givers, LANE)], held)
        made.append((givers, inside, held.sum(1)))
    # Every lane has a result of its own in a prefix sum, which moves up.
    needed = np.ones(LANES, bool) if chain[0].mode == "up" else made[-1][2] == made[-1][2].max()
    found = []
    for one, (givers, inside, terms) in zip(reversed(chain), reversed(made), strict=True):
        found.append(
            Exchange(
                one.distance,
                tuple(int(g) if ok else None for g, ok in zip(givers, inside, strict=True)),
                tuple(terms.tolist()),
                tuple(needed.tolist()),
                one.instruction.source or "",
            )
        )
        before = needed.copy()
        before[givers[inside & needed]] = True
        needed = before
    return tuple(reversed(found))
