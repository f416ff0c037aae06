"""Notes of doubtful sums: warps write them as they store tiles, and read them after the last one.

For each tile a note says whether a warp has doubtful sums, and then each lane has bits for its own.
`recompute` says when a sum is doubtful, and computes those of the notes.
"""

from typing import NamedTuple

import cutlass
from cutlass import Boolean, Int32, Int64, Uint32, cute

from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import PAIRS

ALONE = 8  # sums of a note that its warp computes by itself
UNLISTED = 512  # a note with more sums is not listed
AHEAD = 4  # notes that a lane reads at once
MULTIPLYING = 5  # barrier of the threads that multiply, or of all


class Notes(NamedTuple):
    """One word per warp and tile: the number of doubtful sums. The bits of all notes follow, 32
    lanes per word.

    Then comes the list of sums that are left to `finish`: for each, (item·m + row)·n + column.
    """

    start: cute.Pointer  # Uint32
    count: Int32  # of warps times tiles
    number: cute.Pointer  # counts the doubtful sums of all products
    room: Int32  # of the list; 0: no sum is left


class Doubts(NamedTuple):
    """The doubtful sums of a thread: it has two rows, and pairs of columns, eight columns apart."""

    bits: cute.Tensor  # (2 rows, words): Uint32, a bit per sum of PAIRS pairs
    rows: list  # the two
    column: Int32  # the first one


def words_of(pairs: int) -> int:
    """Words with a bit for each sum of a thread in a row."""
    return -(-pairs // PAIRS)


@cute.jit
def note_bits(notes: Notes, which: Int32, bits: cute.Tensor) -> Int32:
    """Store the bits of the thread's sums. Returns how many doubtful ones the warp has."""
    count = Int32(0)
    for i in cutlass.range_constexpr(cute.size(bits)):
        at = notes.count + (Int64(which) * cute.size(bits) + i) * 32 + cute.arch.lane_idx()
        simt.element(notes.start, at)[0] = bits[i]
        count += Int32(cute.arch.popc(bits[i]))
    for level in cutlass.range_constexpr(5):
        count += cute.arch.shuffle_sync_bfly(count, 16 >> level)
    return Int32(count)


@cute.jit
def note(notes: Notes, which: Int32, doubtful: Int32) -> None:
    """Store how many doubtful sums the warp has in a tile."""
    if cute.arch.lane_idx() == 0:
        simt.element(notes.start, which)[0] = Uint32(doubtful)


class Tiles(NamedTuple):
    """The tiles of a block: `first`, `first + step`, … below `count`."""

    first: Int32
    step: Int32
    count: Int32


class Share(NamedTuple):
    """Which doubtful sums a warp computes: every `warps`-th one from number `first` on."""

    first: Int32
    warps: Int32


@cute.jit
def threads_with(holds: Boolean, threads: cutlass.Constexpr) -> Int32:
    """For how many of the threads it holds. They wait for each other."""
    text = (
        "{ .reg .pred holds; setp.ne.s32 holds, {$r0}, 0; "
        f"barrier.cta.red.popc.aligned.u32 {{$w0}}, {MULTIPLYING}, {threads}, holds; }}"
    )
    count = cute.arch.inline_ptx(text, write_only_types=[Int32], read_only_args=[Int32(holds)])
    return Int32(count)


@cute.jit
def add_noted(
    notes: Notes,
    tiles: Tiles,
    each: cutlass.Constexpr,
    warp: Int32,
    warps: cutlass.Constexpr,
    add: cutlass.Constexpr,
) -> None:
    """Call `add(tile, i, count, share)` if note `i` of a tile, of `each`, has sums for the warp."""
    # One warp lists all sums of a note.
    alone = cutlass.select_(notes.room > 0, Int32(UNLISTED), Int32(ALONE))
    lane, count = cute.arch.lane_idx(), cute.ceil_div(tiles.count - tiles.first, tiles.step) * each
    for begin in cutlass.range(0, count, 32 * AHEAD, unroll=1):
        words = cute.make_rmem_tensor(AHEAD, Int32)
        for r in cutlass.range_constexpr(AHEAD):
            number, value = begin + (32 * r + lane), Uint32(0)
            if number < count:
                tile = tiles.first + number // each * tiles.step
                value = Uint32(simt.element(notes.start, tile * each + number % each)[0])
            words[r] = Int32(value)
        for r in cutlass.range(AHEAD, unroll=1):
            word = Int32(0)
            for i in cutlass.range_constexpr(AHEAD):
                if r == i:
                    word = Int32(words[i])
            left = Uint32(cute.arch.vote_ballot_sync(word != 0))
            while left != 0:
                i = lowest(left)
                left = left & (left - 1)
                number, doubtful = begin + 32 * r + i, cute.arch.shuffle_sync(word, i)
                share = Share(warp, Int32(warps))
                if doubtful <= alone:
                    share = Share(Int32(0), Int32(1))
                if doubtful > alone or number % warps == warp:
                    tile = tiles.first + number // each * tiles.step
                    add(tile, number % each, doubtful, share)


@cute.jit
def bits_of(notes: Notes, which: Int32, pairs: cutlass.Constexpr) -> cute.Tensor:
    """The bits of a note for the thread's lane, (2, words)."""
    bits = cute.make_rmem_tensor((2, words_of(pairs)), Uint32)
    for i in cutlass.range_constexpr(cute.size(bits)):
        at = notes.count + (Int64(which) * cute.size(bits) + i) * 32 + cute.arch.lane_idx()
        bits[i] = simt.element(notes.start, at)[0]
    return bits


@cute.jit
def lowest(word: Uint32) -> Int32:
    """The position of the lowest bit that is set."""
    return Int32(cute.arch.popc((word & (~word + 1)) - 1))
