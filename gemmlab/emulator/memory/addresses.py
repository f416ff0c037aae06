"""Rules of addresses for both tiers. The native tier calls the functions with values of its IR."""

from __future__ import annotations

from gemmlab.emulator.arithmetic.lanes import Value

# Bits 48 and up of a generic address select the state space, like the windows of hardware.
WINDOW_BITS = 48
WINDOWS = ("global", "shared", "local", "param")  # by number
ATOMIC_WINDOWS = ("global", "shared")  # those that atomic operations can access
WINDOW_STARTS = {space: number << WINDOW_BITS for number, space in enumerate(WINDOWS)}
RANK_SHIFT = 24  # first bit of the block rank in .shared::cluster addresses
OFFSET_MASK = (1 << RANK_SHIFT) - 1


def within(start: Value, nbytes: Value, low: Value, high: Value) -> Value:
    """Whether `nbytes` bytes from `start` are at addresses from `low` up to, but not including,
    `high`."""
    return (start >= low) & (start + nbytes <= high)


def excess_bits(address: Value, alignment: Value) -> Value:
    """The low bits that make an address misaligned; 0 if it is aligned. alignment: a power of
    two."""
    return address & (alignment - 1)
