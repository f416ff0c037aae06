"""How often warps and threads executed each basic block of machine code.

The emulator counts blocks of PTX. ptxas keeps for each machine instruction the PTX line it came
from, so every instruction of a machine block has a say in the block's count. What cannot move tells
it best: the branch at the end, then memory accesses and barriers; arithmetic may have been moved
out of a loop or ahead of a branch. The counts of threads that come nearest to all this and in which
as many enter each block as leave it are those of `flow.least_change`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gemmlab.sass.code import ENDLESS, Block, Code, Instruction
from gemmlab.sass.flow import Guess, least_change
from gemmlab.sass.lines import Executed, Lines, PtxLine
from gemmlab.sass.warps import warps

# What a vote weighs: of the branch that ends a block, of what stays where it is, of all else.
BRANCH, FIXED, MOVABLE = 1000, 50, 1
FIXED_ROOTS = frozenset(
    {
        *("LDG", "STG", "LDS", "STS", "LD", "ST", "LDGSTS", "LDSM", "STSM", "TEX", "SULD", "SUST"),
        *("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "SHFL", "VOTE", "MATCH", "REDUX", "NANOSLEEP"),
        *("BAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "WARPGROUP", "WARPSYNC", "SYNCS"),
        *("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "UTMALDG", "UTMASTG", "UBLKCP"),
    }
)
# Arithmetic that is one instruction in both: it stays in its loop, or in each copy of it.
SIMPLE_ROOTS = frozenset({"FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "HADD2"})
SIMPLE_PTX = frozenset({"fma", "add", "sub", "mul"})


@dataclass(frozen=True)
class Counted:
    """What was executed of each block of some code."""

    blocks: tuple[Executed, ...]
    taken: tuple[int, ...]  # threads that the branch at the block's end sent away


def count(code: Code, lines: Lines, entering: Executed) -> Counted:
    """The counts of each block of `code`. entering: what the launch started."""
    places = _places(code)
    votes = [
        Votes() if _around_routine(code, block) else _votes(code, block, lines, places)
        for block in code.blocks
    ]
    guesses = _guesses(code, votes)
    guesses = _shared_out(votes, guesses, lines, places)
    edges = [[(edge.target, int(edge.cold)) for edge in block.edges] for block in code.blocks]
    threads, along = least_change(guesses, edges, entering.threads)
    rolled = _unrolled(code, lines, places, threads)
    if rolled:
        guesses = [rolled.get(i, guess) for i, guess in enumerate(guesses)]
        threads, along = least_change(guesses, edges, entering.threads)
    said = [one.fixed + one.movable for one in votes]
    blocks = tuple(map(Executed, warps(code, lines, said, threads, along, entering), threads))
    return Counted(blocks, tuple(flows[0] if flows else 0 for flows in along))


def threads_on(
    body: Sequence[Instruction], executed: Executed, taken: int, lines: Lines
) -> int | None:
    """Threads whose guards let them take part in the instructions of a block, added up.

    A guard is PTX's own, or stands for a branch of PTX and lets those through that went there. None
    where a guard is of ptxas' making, as in a division: nothing tells whom it lets through.
    """
    total = 0
    of_line = [lines.get(one.line or 0) for one in body]
    always = {x.block for one, x in zip(body, of_line, strict=True) if x and not one.guard}
    for one, line in zip(body, of_line, strict=True):
        if not one.conditional:
            total += executed.threads
        elif one.root in ENDLESS:
            total += taken
        elif line is None or (
            line.block in always and not line.guarded and line.on >= executed.threads > 0
        ):
            return None
        else:
            total += min(executed.threads, line.on)
    return total


@dataclass(frozen=True)
class Votes:
    """What a block's instructions say it was executed, and with what weight."""

    fixed: Counter[Executed] = field(default_factory=Counter)
    movable: Counter[Executed] = field(default_factory=Counter)


Places = Mapping[tuple[int | None, str], Counter[int]]  # line and kind -> copies, by block


def _places(code: Code) -> Places:
    places: dict[tuple[int | None, str], Counter[int]] = defaultdict(Counter)
    for i, block in enumerate(code.blocks):
        for one in code.inside(block):
            kind = "branch" if one.root in ("BRA", "EXIT") and one.conditional else one.root
            places[one.line, kind][i] += 1
    return places


def _votes(code: Code, block: Block, lines: Lines, places: Places) -> Votes:
    votes, copies = Votes(), _copies(code, block, lines, places)
    for one in code.inside(block):
        line = lines.get(one.line or 0)
        if line is None:
            continue
        executed = line.executed // copies.get(line.block, 1)
        if one.root in ("BRA", "EXIT", "BRX"):
            # ret is where many paths end, and ptxas copies it to all of them.
            if one.conditional and line.branch and len(places[one.line, "branch"]) == 1:
                votes.fixed[executed] += BRANCH
        elif not one.guard and one.root not in ("BSSY", "BSYNC", "RET", "CALL"):
            alone = len(places[one.line, one.root]) == 1
            if one.root in FIXED_ROOTS and alone and line.clear:
                votes.fixed[executed] += FIXED
            else:
                votes.movable[executed] += MOVABLE
    return votes


def _copies(code: Code, block: Block, lines: Lines, places: Places) -> dict[int, int]:
    """How often a block holds a block of PTX that it alone holds: all rounds of a loop, or some.

    One instruction of PTX may become two. But then not each in its block does.
    """
    of_block: dict[int, list[int]] = defaultdict(list)
    for number, root in {(one.line, one.root) for one in code.inside(block)}:
        line, copies = lines.get(number or 0), places[number, root]
        if line and _is_one_to_one(root, line) and len(copies) == 1:
            of_block[line.block].append(copies.total())
    return {number: min(counts) for number, counts in of_block.items() if len(counts) > 1}


def _is_one_to_one(root: str, line: PtxLine) -> bool:
    return root in FIXED_ROOTS or (root in SIMPLE_ROOTS and line.root in SIMPLE_PTX)


def _around_routine(code: Code, block: Block) -> bool:
    """Whether it calls a routine or is where one returns to: a slow path, whose lines are the fast
    one's."""
    before = code.instructions[block.first - 1] if block.first else None
    return code.instructions[block.last - 1].calls_routine or bool(before and before.calls_routine)


def _guess(said: Counter[Executed]) -> Guess:
    """The weighted median; it weighs as much as those who said exactly this."""
    half, so_far = said.total() / 2, 0
    for executed in sorted(said, key=lambda executed: executed.threads):
        so_far += said[executed]
        if so_far >= half:
            return Guess(executed.threads, said[executed])
    return Guess(0, 0)


def _guesses(code: Code, votes: Sequence[Votes]) -> list[Guess]:
    """By block: what is fixed decides, and without it what is movable.

    In front of a loop that leaves out what says the loop's own count: it came out of the loop.
    """
    guesses = [_guess(one.fixed or one.movable) for one in votes]
    heads = {e.target for i, block in enumerate(code.blocks) for e in block.edges if e.target <= i}
    for i, block in enumerate(code.blocks):
        loops = {guesses[e.target].times for e in block.edges if e.target in heads and e.target > i}
        own = Counter({e: n for e, n in votes[i].movable.items() if e.threads not in loops})
        if own and not votes[i].fixed:
            guesses[i] = _guess(own)
    return guesses


def _shared_out(
    votes: Sequence[Votes], guesses: Sequence[Guess], lines: Lines, places: Places
) -> list[Guess]:
    """Where ptxas copied a line to several blocks, the one of which nothing else is fixed has what
    the others leave of the line's count: the loop, say, whose first round is in front of it."""
    shared = list(guesses)
    for (number, kind), copies in places.items():
        line = lines.get(number or 0)
        unknown = [i for i in copies if not votes[i].fixed]
        if line is None or len(copies) < 2 or len(unknown) > 1 or not unknown:
            continue
        if line.branch if kind == "branch" else kind in FIXED_ROOTS and line.clear:
            others = sum(copies[i] * guesses[i].times for i in copies if i != unknown[0])
            left = max(0, line.executed.threads - others)
            shared[unknown[0]] = Guess(left // copies[unknown[0]], FIXED)
    return shared


def _unrolled(code: Code, lines: Lines, places: Places, threads: Sequence[int]) -> dict[int, Guess]:
    """Guesses for loops that ptxas has unrolled: blocks with several copies of the loop's body.

    The largest takes as many rounds as it can, the smaller ones the rest. All threads are taken to
    make the same number of rounds.
    """
    found: dict[int, Guess] = {}
    for (number, root), copies in places.items():
        line = lines.get(number or 0)
        if line is None or not _is_one_to_one(root, line):
            continue
        if len(set(copies.values())) < 2:
            continue
        loops = {i for i in copies if any(edge.target == i for edge in code.blocks[i].edges)}
        main = max(copies, key=lambda i: copies[i])
        if main not in loops or main in found:
            continue
        outside = (
            threads[i]
            for i, block in enumerate(code.blocks)
            if i not in copies and any(edge.target == main for edge in block.edges)
        )
        entries = max(outside, default=0)
        rounds = line.executed.threads // entries if entries else 0
        for i in sorted(copies, key=lambda i: -copies[i]):
            times = rounds // copies[i] if i in loops else min(1, rounds // copies[i])
            rounds -= times * copies[i]
            found[i] = Guess(entries * times, BRANCH)
    return found
