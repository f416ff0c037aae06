"""Reorder the FFMAs of an inner loop for the reuse cache, and prove that the result is the same.

ptxas interleaves the products of several steps along k, so that some FFMAs find no factor in the
reuse cache. `reorder` rewrites the basic block with the most FFMAs, in place: step after step,
products of two rows and two columns follow each other. Their four factors stay in the cache, so an
FFMA reads about 1.5 registers. The loads of the next step come 16 FFMAs apart. Sums stay in their
registers; factors get quads that are free in the block.

`proof.prove` shows that the new block computes what the old one did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from gemmlab.cubin.code import Block, Code, Instruction
from gemmlab.cubin.control import decode, with_control
from gemmlab.cubin.proof import disassemble, prove, refused, section
from gemmlab.cubin.registers import effects, granted, live
from gemmlab.cubin.values import FFMA, State, Values, is_copy, is_ffma, is_load

# Unguarded, with the usual control bits.
_BRA = 0x000FEA0003800000_0000000000007947
_NOP = 0x000FC00000000000_0000000000007918
_ALL = 0b111111  # scoreboards
_APART = 16  # FFMAs between two loads
_SPACING = 14  # FFMAs between two other instructions: more than any fixed latency


@dataclass(frozen=True)
class Product:
    """What the block computes: sums[i, j] += a[k][i] · b[k][j] for each step k, in this order."""

    sums: dict[tuple[int, int], int]  # (row, column) -> register
    a: list[list[int]]  # values, by step and row
    b: list[list[int]]  # values, by step and column

    def factors(self, k: int) -> list[list[int]]:
        """Return the values of step k in fours, as they are loaded."""
        values = self.a[k] + self.b[k]
        return [values[i : i + 4] for i in range(0, len(values), 4)]


def reorder(cubin: bytes, entry: str) -> bytes:
    """Return the cubin with the kernel's busiest basic block rewritten.

    Raises CompileError if the block is not the product of fragments from shared memory that is
    described above, has no free registers, or if the proof fails; MissingDependencyError without
    nvdisasm.
    """
    code = disassemble(cubin, entry)
    index = max(range(len(code.blocks)), key=lambda i: _ffmas(code, code.blocks[i]))
    block = code.blocks[index]
    old = code.instructions[block.first : block.last]
    starts, ends = live(code)
    values, after = Values(), State()
    values.run(old, after)
    product = _product(values, after)
    kept = [x for x in old if not (is_ffma(x) or is_load(x) or is_copy(x) or x.root == "NOP")]
    branch = kept.pop() if kept and kept[-1].root == "BRA" else None
    busy = set(product.sums.values()) | starts[index] | ends[index]
    for one in kept:
        busy |= set[int]().union(*effects(one))
    new = _emit(values, product, old, kept, _quads(code, busy, product))
    if len(new) + (branch is not None) > len(old):
        raise refused("it would become longer")
    words = _fill(new, old, branch)
    at = section(cubin, entry)[0] + old[0].address
    text = b"".join(word.to_bytes(16, "little") for word in words)
    changed = cubin[:at] + text + cubin[at + len(text) :]
    prove(cubin, changed, entry)
    return changed


def _ffmas(code: Code, block: Block) -> int:
    return sum(is_ffma(one) for one in code.inside(block))


def _product(values: Values, after: State) -> Product:
    """Find the rows and columns of the sums in the values after the block."""
    chains: dict[int, list[tuple[int, int]]] = {}
    for register, value in after.items():
        chain = []
        while values.meaning[value][0] == "ffma":
            _, x, y, value = values.meaning[value]
            chain.append((x, y))
        if chain and values.meaning[value] == ("before", register):
            chains[int(register)] = chain[::-1]
    if len({len(chain) for chain in chains.values()}) != 1:
        raise refused("its sums have different numbers of terms")
    steps = len(next(iter(chains.values())))
    uses = Counter(value for chain in chains.values() for value in chain[0])
    loaded = sorted(uses, key=lambda value: _place(values, value))
    bases = list(dict.fromkeys(_base(values, value) for value in loaded))
    if len(bases) != 2:
        raise refused("its factors are not loaded from two tiles")
    rows = [v for v in loaded if _base(values, v) == bases[0]]
    columns = [v for v in loaded if _base(values, v) == bases[1]]
    a = [[-1] * len(rows) for _ in range(steps)]
    b = [[-1] * len(columns) for _ in range(steps)]
    sums = {}
    for register, chain in chains.items():
        pairs = [pair if _base(values, pair[0]) == bases[0] else pair[::-1] for pair in chain]
        i, j = rows.index(pairs[0][0]), columns.index(pairs[0][1])
        sums[i, j] = register
        for k, (x, y) in enumerate(pairs):
            if a[k][i] not in (-1, x) or b[k][j] not in (-1, y):
                raise refused("its sums are not an outer product")
            a[k][i], b[k][j] = x, y
    if len(sums) != len(rows) * len(columns):
        raise refused("its sums are not a rectangle")
    return Product(sums, a, b)


def _base(values: Values, value: int) -> str:
    kind, *where = values.meaning[value]
    if kind != "load":
        raise refused("a factor is not loaded from shared memory by LDS.128")
    return str(where[0]).partition("+0x")[0].rstrip("]")


def _place(values: Values, value: int) -> tuple[str, int, int]:
    base = _base(values, value)
    _, where, element, _ = values.meaning[value]
    return base, int(where.partition("+0x")[2].rstrip("]") or "0", 16), element


def _quads(code: Code, busy: set[int], product: Product) -> list[int]:
    """Return the first registers of free quads, for the factors of two steps."""
    quads = range(0, granted(code) - 3, 4)
    free = [q for q in quads if not busy & set(range(q, q + 4))]
    needed = 2 * len(product.factors(0))
    if len(free) < needed:
        raise refused(f"{len(free)} quads of registers are free, {needed} are needed")
    return free[-needed:]


def _emit(
    values: Values,
    product: Product,
    old: Sequence[Instruction],
    kept: Sequence[Instruction],
    quads: Sequence[int],
) -> list[int]:
    """Return the words of the new block, without its branch."""
    loads = {values.address(x, {}): x for x in old if is_load(x)}
    taken = {b for x in kept for c in (decode(x.word),) for b in (c.write_barrier, c.read_barrier)}
    barriers = [b for b in range(6) if b not in taken][:2]  # of even and odd steps
    steps, half = len(product.a), len(quads) // 2
    rows, columns = len(product.a[0]), len(product.b[0])

    def load(k: int, four: int, *, stall: int = 1, waits: int = 0) -> int:
        wanted = product.factors(k)[four]
        address = values.meaning[wanted[0]][1]
        if [values.meaning[v][:3] for v in wanted] != [("load", address, i) for i in range(4)]:
            raise refused("its fragments are not quads")
        word = loads[address].word & ~(255 << 16) | quads[k % 2 * half + four] << 16
        return with_control(word, stall=stall, waits=waits, write_barrier=barriers[k % 2])

    def register(k: int, x: int) -> int:
        return quads[k % 2 * half + x // 4] + x % 4

    order = _walk(product.sums, rows, columns)
    keep = reuse(order)
    # The first load waits for everything that may be in flight on entry.
    new = [load(0, x, stall=1 + (x == half - 1), waits=_ALL * (x == 0)) for x in range(half)]
    waiting = list(kept)
    for k in range(steps):
        for at, (i, j) in enumerate(order):
            if at % _APART == _APART // 2 and at // _APART < half and k + 1 < steps:
                new.append(load(k + 1, at // _APART))
            # What remains of the loop comes in the last step, when all loads have arrived.
            if k == steps - 1 and at % _SPACING == 4 and waiting:
                new.append(waiting.pop(0).word)
            word = FFMA | product.sums[i, j] << 16 | register(k, i) << 24
            word |= register(k, rows + j) << 32 | product.sums[i, j] << 64
            waits = 1 << barriers[k % 2] if at == 0 else 0
            new.append(with_control(word, stall=1, waits=waits, reuse=keep[at]))
    if waiting:
        raise refused(f"it has {len(kept)} instructions besides FFMA and LDS")
    return new


def _walk(sums: Mapping[tuple[int, int], int], rows: int, columns: int) -> list[tuple[int, int]]:
    """Return the order of a step's products: in blocks of two rows and two columns.

    The factors of a block, two of each bank, stay in the reuse cache, so its four products read 1.5
    registers each. Rows and columns are paired, and the products of a block ordered, such that the
    registers written alternate between the banks: then the data of a load, which also has to be
    written, finds a bank free in every cycle.
    """

    def block(i: int, i2: int, j: int, j2: int) -> list[tuple[int, int]]:
        return [(i, j), (i, j2), (i2, j), (i2, j2)]

    def bank(place: tuple[int, int]) -> int:
        return sums[place] % 2

    def uneven(places: list[tuple[int, int]]) -> int:
        return (0, 1, 3)[abs(sum(map(bank, places)) - 2)]

    def paired_columns(i: int, i2: int) -> tuple[int, list[tuple[int, int]]]:
        return _matching(columns, lambda j, j2: uneven(block(i, i2, j, j2)))

    order: list[tuple[int, int]] = []
    _, pairs = _matching(rows, lambda i, i2: paired_columns(i, i2)[0])
    for i, i2 in pairs:
        for j, j2 in paired_columns(i, i2)[1]:
            order += min(
                permutations(block(i, i2, j, j2)),
                key=lambda places: sum(
                    bank(x) == bank(y) for x, y in pairwise([*order[-1:], *places])
                ),
            )
    return order


def _matching(size: int, cost: Callable[[int, int], int]) -> tuple[int, list[tuple[int, int]]]:
    """Pair each even number below `size` with an odd one; return the least cost, and the pairs."""
    best: dict[int, tuple[int, list[tuple[int, int]]]] = {0: (0, [])}  # by the odd ones taken
    for even in range(0, size, 2):
        costs = [cost(even, odd) for odd in range(1, size, 2)]
        longer: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        for taken, (total, pairs) in best.items():
            for i, extra in enumerate(costs):
                now = taken | 1 << i
                if not taken >> i & 1 and (now not in longer or total + extra < longer[now][0]):
                    longer[now] = total + extra, [*pairs, (even, 2 * i + 1)]
        best = longer
    ((_, found),) = best.items()
    return found


def reuse(order: Sequence[tuple[int, int]]) -> list[int]:
    """Return the slots to keep: those whose next read from the same bank is of the same register.

    A factor's bank is its row or column mod 2, since it is in a quad.
    """
    keep = [0] * len(order)
    for slot in range(2):
        following: dict[int, int] = {}
        for at in reversed(range(len(order))):
            factor = order[at][slot]
            keep[at] |= (following.get(factor % 2) == factor) << slot
            following[factor % 2] = factor
    return keep


def _fill(new: list[int], old: Sequence[Instruction], branch: Instruction | None) -> list[int]:
    """Return the block's words: the new ones, its branch, then a jump to its end."""
    words = list(new)
    size = len(old)
    if branch is not None:
        moved = size - 1 - len(words)  # instructions by which the branch comes earlier
        words.append(_jump(branch.word, _offset(branch.word) + 16 * moved))
    rest = size - len(words)
    if rest:
        words += [_jump(_BRA, 16 * (rest - 1)), *[_NOP] * (rest - 1)]
    return words


def _offset(word: int) -> int:
    """Return the distance of a branch in bytes, from the next instruction."""
    high = word >> 34 & (1 << 48) - 1
    return ((high - (high >> 47 << 48)) << 8 | word >> 16 & 255) * 4


def _jump(word: int, offset: int) -> int:
    """Return a branch with another distance."""
    word &= ~(((1 << 48) - 1) << 34 | 255 << 16)
    return word | (offset // 4 & 255) << 16 | (offset // 1024 & (1 << 48) - 1) << 34
