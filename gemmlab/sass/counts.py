"""Estimates how often warps and threads execute each basic block of machine code.

The emulator counts blocks of PTX, and ptxas records the PTX line of each machine instruction. Every
instruction therefore votes on the count of its machine block. Instructions that ptxas cannot move
are the most reliable: the branch at the block's end, then memory accesses and barriers. Arithmetic
may have been hoisted out of a loop or above a branch. `flow.Graph` finds the thread counts
closest to the votes in which every block is entered as often as it is left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from gemmlab.cubin.code import ENDLESS, Block, Code, Instruction
from gemmlab.emulator.program import Program
from gemmlab.ptx.opcodes import FLOPS, is_arithmetic
from gemmlab.sass.flow import Estimate, Graph
from gemmlab.sass.lines import Executed, Lines, PtxLine, kinds_of_lines
from gemmlab.sass.regions import Region, Regions
from gemmlab.sass.warps import warps

# Weights of votes: the branch that ends a block, instructions that cannot move, and all others.
BRANCH, FIXED, MOVABLE = 1000, 50, 1
FIXED_ROOTS = frozenset(
    {
        *("LDG", "STG", "LDS", "STS", "LD", "ST", "LDGSTS", "LDSM", "STSM", "TEX", "SULD", "SUST"),
        *("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "SHFL", "VOTE", "MATCH", "REDUX", "NANOSLEEP"),
        *("BAR", "DEPBAR", "LDGDEPBAR", "MEMBAR", "WARPGROUP", "WARPSYNC", "SYNCS"),
        *("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "UTMALDG", "UTMASTG", "UBLKCP"),
    }
)
# Arithmetic that is one instruction in PTX and in machine code. It stays in its loop or in each
# copy of the loop.
SIMPLE_ROOTS = frozenset({"FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "HADD2"})
SIMPLE_PTX = frozenset(filter(is_arithmetic, FLOPS))


@dataclass(frozen=True)
class Counted:
    """Execution counts of each block."""

    blocks: tuple[Executed, ...]
    taken: tuple[int, ...]  # threads that took the branch at the block's end


def prepare_counts(code: Code, program: Program) -> None:
    """Find what all counts of a kernel use, before processes share the counting."""
    kinds_of_lines(program)
    _Ballot.of(code)
    Regions.find(code)


def count(code: Code, lines: Lines, launched: Executed) -> Counted:
    """Return the counts of each block of `code`. launched: the warps and threads launched."""
    ballot = _Ballot.of(code)
    votes = [_votes(voters, lines) for voters in ballot.voters]
    estimates = _estimates(code, votes)
    estimates = _distribute_duplicates(votes, estimates, lines, ballot.places)
    threads, edge_threads = ballot.graph.closest(estimates, launched.threads)
    rolled = _unrolled(code, lines, ballot.places, threads)
    if rolled:
        estimates = [rolled.get(i, estimate) for i, estimate in enumerate(estimates)]
        threads, edge_threads = ballot.graph.closest(estimates, launched.threads)
    all_votes = [one.fixed + one.movable for one in votes]
    blocks = tuple(
        map(Executed, warps(code, lines, all_votes, threads, edge_threads, launched), threads)
    )
    return Counted(blocks, tuple(flows[0] if flows else 0 for flows in edge_threads))


def threads_on(
    body: Sequence[Instruction], executed: Executed, taken: int, lines: Lines
) -> int | None:
    """Return the number of predicated-on thread-instructions in a block.

    A guard is either PTX's own or replaces a PTX branch, in which case the threads that took the
    branch are on. Returns None if ptxas introduced a guard, as in a division, since its outcome is
    unknown.
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
    """The execution counts that a block's instructions suggest, weighted."""

    fixed: Counter[Executed] = field(default_factory=Counter)
    movable: Counter[Executed] = field(default_factory=Counter)


Place = tuple[int, str]  # PTX line, or 0 if unknown, and what an instruction is there


@dataclass(frozen=True)
class _Voters:
    """The instructions of a block that vote.

    number: PTX line and weight -> how many vote. alone: places that no other block has, and the
    copies here.
    """

    number: Counter[tuple[int, int]] = field(default_factory=Counter)
    alone: list[tuple[Place, int]] = field(default_factory=list)


@dataclass(frozen=True)
class _Ballot:
    """What all counts of a kernel use. places: the copies in each block. voters: of each block."""

    places: Mapping[Place, Counter[int]]
    voters: Sequence[_Voters]
    graph: Graph

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, code: Code) -> _Ballot:
        places: dict[Place, Counter[int]] = {}
        for i, block in enumerate(code.blocks):
            for one in code.inside(block):
                kind = "branch" if one.root in ("BRA", "EXIT") and one.conditional else one.root
                places.setdefault((one.line or 0, kind), Counter())[i] += 1
        voters = [
            _Voters() if _is_slow_path(code, block) else _voters(code, block, places)
            for block in code.blocks
        ]
        edges = [[(edge.target, int(edge.cold)) for edge in block.edges] for block in code.blocks]
        return cls(places, voters, Graph(edges))


def _voters(code: Code, block: Block, places: Mapping[Place, Counter[int]]) -> _Voters:
    found, alone = _Voters(), dict[Place, int]()
    for one in code.inside(block):
        number, root = one.line or 0, one.root
        if root in ("BRA", "EXIT", "BRX"):
            # Many paths end at a ret, and ptxas duplicates it for each of them.
            if one.conditional and len(places.get((number, "branch"), ())) == 1:
                found.number[number, BRANCH] += 1
            continue
        copies = places[number, root]
        if len(copies) == 1 and root in FIXED_ROOTS | SIMPLE_ROOTS:
            alone[number, root] = copies.total()
        if not one.guard and root not in ("BSSY", "BSYNC", "RET", "CALL"):
            is_fixed = len(copies) == 1 and root in FIXED_ROOTS
            found.number[number, FIXED if is_fixed else MOVABLE] += 1
    found.alone.extend(alone.items())
    return found


def _votes(voters: _Voters, lines: Lines) -> Votes:
    votes, copies = Votes(), _copies(voters, lines)
    for (number, weight), times in voters.number.items():
        line = lines.get(number)
        if line is None:
            continue
        executed = line.executed
        if line.block in copies:
            executed //= copies[line.block]
        if weight == BRANCH:
            if line.branch:
                votes.fixed[executed] += times * BRANCH
        elif weight == FIXED and line.clear:
            votes.fixed[executed] += times * FIXED
        else:
            votes.movable[executed] += times * MOVABLE
    return votes


def _copies(voters: _Voters, lines: Lines) -> dict[int, int]:
    """Return how many copies of each PTX block this machine block holds, for PTX blocks that only
    occur here, as in unrolled loops.

    Requires several instructions of the PTX block, since one instruction may expand to two, but not
    all.
    """
    of_block: dict[int, list[int]] = defaultdict(list)
    for (number, root), copies in voters.alone:
        line = lines.get(number)
        if line and _is_one_to_one(root, line):
            of_block[line.block].append(copies)
    return {number: min(counts) for number, counts in of_block.items() if len(counts) > 1}


def _is_one_to_one(root: str, line: PtxLine) -> bool:
    if line.root == "wmma":  # becomes several loads or products
        return False
    return root in FIXED_ROOTS or (root in SIMPLE_ROOTS and line.root in SIMPLE_PTX)


def _is_slow_path(code: Code, block: Block) -> bool:
    """Whether the block calls a routine, is where one returns, or executes for a diverged warp what
    all lanes must execute together. This is a slow path that shares its PTX lines with the fast
    path."""
    before = code.instructions[block.first - 1] if block.first else None
    if code.instructions[block.last - 1].calls_routine or (before and before.calls_routine):
        return True
    return any(one.root == "ENDCOLLECTIVE" for one in code.inside(block))


def _estimate(votes: Counter[Executed]) -> Estimate:
    """Return the weighted median of the votes. Its weight is that of the votes with exactly this
    value."""
    half, so_far = votes.total() / 2, 0
    for executed in sorted(votes, key=lambda executed: executed.threads):
        so_far += votes[executed]
        if so_far >= half:
            return Estimate(executed.threads, votes[executed])
    return Estimate(0, 0)


def _estimates(code: Code, votes: Sequence[Votes]) -> list[Estimate]:
    """Return an estimate per block from its fixed votes or, without any, from its movable ones.

    In front of a loop, votes for the loop's count are ignored: those instructions were hoisted.
    """
    estimates = [_estimate(one.fixed or one.movable) for one in votes]
    heads = {e.target for i, block in enumerate(code.blocks) for e in block.edges if e.target <= i}
    for i, block in enumerate(code.blocks):
        loops = {
            estimates[e.target].times for e in block.edges if e.target in heads and e.target > i
        }
        own = Counter({e: n for e, n in votes[i].movable.items() if e.threads not in loops})
        if own and not votes[i].fixed:
            estimates[i] = _estimate(own)
    return estimates


def _distribute_duplicates(
    votes: Sequence[Votes],
    estimates: Sequence[Estimate],
    lines: Lines,
    places: Mapping[Place, Counter[int]],
) -> list[Estimate]:
    """Distribute the count of a line that ptxas duplicated into several blocks. If only one of
    them has no fixed votes, it gets the remainder; an example is a loop with its first iteration
    peeled."""
    shared = list(estimates)
    for (number, kind), copies in places.items():
        if len(copies) < 2:
            continue
        line = lines.get(number)
        unknown = [i for i in copies if not votes[i].fixed]
        if line is None or len(unknown) != 1:
            continue
        if line.branch if kind == "branch" else kind in FIXED_ROOTS and line.clear:
            others = sum(copies[i] * estimates[i].times for i in copies if i != unknown[0])
            left = max(0, line.executed.threads - others)
            shared[unknown[0]] = Estimate(left // copies[unknown[0]], FIXED)
    return shared


def _unrolled(
    code: Code, lines: Lines, places: Mapping[Place, Counter[int]], threads: Sequence[int]
) -> dict[int, Estimate]:
    """Return estimates for unrolled loops, which have regions with several copies of the body.

    The loop with the most copies executes as many iterations as it can, and the others the rest.
    This assumes that all threads execute the same number of iterations.
    """
    regions = Regions.find(code)
    candidates = [
        (line, places_of_line)
        for (number, root), places_of_line in places.items()
        if (line := lines.get(number)) is not None and _is_one_to_one(root, line)
    ]
    # First the lines that run in every iteration: others may have become predicated ones.
    candidates.sort(key=lambda candidate: -candidate[0].executed.threads)
    found: dict[int, Estimate] = {}
    for line, places_of_line in candidates:
        copies = Counter[Region]()
        for i, count_here in places_of_line.items():
            copies[regions.of[i]] += count_here
        if len(set(copies.values())) < 2:
            continue
        heads = {region: min(region & regions.innermost.keys(), default=None) for region in copies}
        main = max(copies, key=lambda region: copies[region])
        head = heads[main]
        if head is None or head in found:
            continue
        entrance = regions.entrance(head, places_of_line)
        entries = 0 if entrance is None else threads[entrance]
        rounds = line.executed.threads // entries if entries else 0
        for region in sorted(copies, key=lambda region: -copies[region]):
            times = rounds // copies[region]
            if heads[region] is None:
                times = min(1, times)
            rounds -= times * copies[region]
            found |= dict.fromkeys(region, Estimate(entries * times, BRANCH))
    return found
