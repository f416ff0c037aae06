"""Text pictures: the roofline, banks and sectors of a request, and the warps that write a tile."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gemmlab.core.figures import digits
from gemmlab.emulator.counters import rules
from gemmlab.emulator.counters.rules import BANK_BYTES, BANKS, LANES, SECTOR_BYTES
from gemmlab.hardware.specs import Gpu
from gemmlab.lab.explain.counted import DIGITS, NONE
from gemmlab.lab.explain.patterns import Pattern

SEVERAL = "*"
WORDS = SECTOR_BYTES // BANK_BYTES  # per sector
Mark = tuple[str, float, float]  # a point of the roofline: character, FLOPs per byte, TFLOPS


# Memory


def picture(pattern: Pattern, width: int, height: int = 4) -> list[str]:
    """Draw one warp's request: each 4-byte word as the digit of the lane that accesses it.

    Returns at most `height` lines of `width` characters, and one that counts the omitted lines.
    """
    if pattern.space == "shared":
        lines, kind = bank_lines(pattern), "wavefronts"
    else:
        lines, kind = sector_lines(pattern, width), "lines of sectors"
    left = len(lines) - height
    return lines if left <= 0 else [*lines[:height], f"… and {left} more {kind}"]


def bank_lines(pattern: Pattern) -> list[str]:
    """Draw a request to shared memory: one line per wavefront, one column per bank."""
    addresses, active = _lanes(pattern)
    is_load = pattern.operation == "load"
    phases = rules.phases(addresses[None], active[None], pattern.width, is_load)[0]
    words_per_lane = max(pattern.width // BANK_BYTES, 1)
    lines = []
    for number, words in enumerate(phases.tolist()):
        readers: dict[int, set[int]] = {}  # word -> lanes
        for slot, word in enumerate(words):
            if word >= 0:
                lane = number * LANES // len(phases) + slot // words_per_lane
                readers.setdefault(word, set()).add(lane)
        columns: list[list[str]] = [[] for _ in range(BANKS)]
        for word in sorted(readers):
            columns[word % BANKS].append(_mark(readers[word]))
        for turn in range(max(map(len, columns))):
            cells = (column[turn] if turn < len(column) else NONE for column in columns)
            lines.append("".join(cells))
    return lines


def sector_lines(pattern: Pattern, width: int) -> list[str]:
    """Draw a request to global memory: the accessed sectors in order, each as "[eight words]"."""
    addresses, active = _lanes(pattern)
    readers: dict[int, set[int]] = {}
    for lane in np.flatnonzero(active).tolist():
        first = int(addresses[lane])
        for word in range(first // BANK_BYTES, (first + pattern.width - 1) // BANK_BYTES + 1):
            readers.setdefault(word, set()).add(lane)
    sectors = sorted({word // WORDS for word in readers})
    texts = [
        "[" + "".join(_mark(readers.get(s * WORDS + i, set())) for i in range(WORDS)) + "]"
        for s in sectors
    ]
    per_line = max(1, min(8, width // (WORDS + 2)))
    return ["".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]


def _lanes(pattern: Pattern) -> tuple[np.ndarray, np.ndarray]:
    addresses = np.array([-1 if a is None else a for a in pattern.addresses], np.int64)
    return addresses, addresses >= 0


def _mark(lanes: set[int]) -> str:
    return DIGITS[next(iter(lanes))] if len(lanes) == 1 else SEVERAL if lanes else NONE


# Tiles


def tile_lines(owners: Sequence[str]) -> list[str]:
    """Return the owners of a tile, downsampled by `tile_steps`. `owners`: see Counted."""
    rows, columns = tile_steps(owners)
    return [line[::columns] for line in owners[::rows]]


def tile_steps(owners: Sequence[str], height: int = 8, width: int = 32) -> tuple[int, int]:
    """Return the number of rows and of columns that one character represents."""
    return -(-len(owners) // height), -(-len(owners[0]) // width)


# Roofline


def roofline_lines(
    gpu: Gpu, points: Sequence[Mark], ceiling: float | None, width: int, height: int = 8
) -> list[str]:
    """Plot TFLOPS over FLOPs per byte, both logarithmic, with points on the roof or below it.

    ceiling: the TFLOPS limit of another unit, drawn as a dotted line if it is below the peak.
    """
    intensities = [gpu.ridge, *(intensity for _, intensity, _ in points)]
    left = math.log2(min(gpu.ridge / 8, *intensities)) - 1
    step = (math.log2(max(intensities)) + 2 - left) / (width - 1)
    top = math.log2(gpu.fp32_tflops)
    least = min((tflops for _, _, tflops in points), default=math.inf)
    bottom = math.log2(min(gpu.attainable_tflops(2**left), least, ceiling or math.inf))
    rise = (top - bottom) / (height - 1)

    def row(tflops: float) -> int:
        return round((top - math.log2(tflops)) / rise)

    def column(intensity: float) -> int:
        return round((math.log2(intensity) - left) / step)

    cells = [[" "] * width for _ in range(height)]
    for x in range(width):
        roof = row(gpu.attainable_tflops(2 ** (left + x * step)))
        cells[roof][x] = "─" if roof == 0 else "╱"
    if ceiling and ceiling < gpu.fp32_tflops:
        line = cells[row(ceiling)]
        line[:] = ["╌" if cell == " " else cell for cell in line]
    for mark, intensity, tflops in points:
        x, y = column(intensity), row(tflops)
        cells[y][x] = mark if cells[y][x] in " ─╱╌" else SEVERAL
    names = {0: gpu.fp32_tflops, height - 1: 2**bottom}
    lines = [
        f"{f'{names[y]:.3g}' if y in names else '':>6} │{''.join(line)}"
        for y, line in enumerate(cells)
    ]
    axis, numbers = ["─"] * width, [" "] * (width + 6)
    for intensity in intensities:
        x = column(intensity)
        axis[x] = "┴"
        text = digits(intensity)
        if all(cell == " " for cell in numbers[max(x - 1, 0) : x + len(text) + 1]):
            numbers[x : x + len(text)] = text
    return [*lines, "TFLOPS └" + "".join(axis), " " * 8 + "".join(numbers).rstrip()]
