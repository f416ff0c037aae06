"""The list of doubtful sums that the blocks of a deep product leave to `finish`."""

import cutlass
from cutlass import Boolean, Int32, Int64, Uint32, Uint64, cute

from gemmlab.kernels import atomics
from gemmlab.kernels.gemm import simt
from gemmlab.kernels.gemm.sm90.config import PAIRS
from gemmlab.kernels.gemm.sm90.notes import Doubts, Notes
from gemmlab.kernels.gemm.sm90.reporting import LISTED, NUMBER

NO_ENTRY = 2**64 - 1  # in the list


def entries_of(notes: Notes, doubts: Doubts) -> cute.Pointer:
    """The list behind the notes."""
    words = 1 + 32 * cute.size(doubts.bits)
    return cute.recast_ptr(notes.start + notes.count * Int64(words), dtype=Uint64)


@cute.jit
def list_doubtful(
    doubts: Doubts,
    notes: Notes,
    count: Int32,
    base: Int64,
    columns: Int32,
    pairs: cutlass.Constexpr,
) -> Boolean:
    """Leave the `count` sums of a note to `finish`, if the list has room. Returns whether it has.

    base: (item·m)·n. columns: n. Sums of the same row whose columns are adjacent become neighbors
    in the list: the lanes that compute them read the same sectors of a row-major B.
    """
    length, lane = notes.number + (LISTED - NUMBER), cute.arch.lane_idx()
    first = Uint64(0)
    if lane == 0:
        first = cute.arch.atomic_add(length, Uint64(count), sem="relaxed", scope="gpu")
        first = cutlass.min(first, Uint64(notes.room))  # it may exceed 32 bits
    first = Int64(cute.arch.shuffle_sync(Int32(first), 0))
    has_room = first + count <= notes.room
    if has_room:
        if lane == 0:
            atomics.add(notes.number, Uint64(count))
        bits, words = doubts.bits, cute.size(doubts.bits)
        entries = entries_of(notes, doubts) + first
        before = (Uint32(1) << Uint32(lane)) - 1  # lanes
        for which in cutlass.range_constexpr(words):
            row, column = doubts.rows[which % 2], doubts.column + which // 2 * (8 * PAIRS)
            for i in cutlass.range(min(2 * PAIRS, 2 * pairs), unroll=1):
                own = (bits[which] >> Uint32(i)) & 1
                holders = Uint32(cute.arch.vote_ballot_sync(own != 0))
                if own != 0:
                    at = base + Int64(row) * columns + (column + i // 2 * 8 + i % 2)
                    simt.element(entries, Int32(cute.arch.popc(holders & before)))[0] = Uint64(at)
                entries += Int32(cute.arch.popc(holders))
    else:
        for i in cutlass.range(Int32(first) + lane, notes.room, 32, unroll=1):
            simt.element(entries_of(notes, doubts), i)[0] = Uint64(NO_ENTRY)
    cute.arch.sync_warp()  # tensor cores need whole warps
    return has_room
