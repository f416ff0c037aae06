"""What an FFMA costs by the registers that it reads. Seconds of GPU time.

    python -m benchmarks register-file benchmarks/h100/register-file.json

Registers and reuse bits of a loop of FFMAs are set in its machine code. For each sequence: cycles
per FFMA of a partition of a multiprocessor, with one, two and three warps in each of the four, and
cycles by the rule of `gemmlab show --lint`. `docs/machine-code.md` shows them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.cubin.code import Instruction
from gemmlab.cubin.control import with_control
from gemmlab.cubin.lint import lint
from gemmlab.cubin.loops import hot_loop
from gemmlab.cubin.proof import disassemble, section
from gemmlab.cubin.registers import effects
from gemmlab.cubin.reorder import reuse
from gemmlab.cubin.values import FFMA
from gemmlab.report.markdown import table

ROWS, COLUMNS, SPARE = 12, 8, 20  # factors, and more registers to choose from
REPEATS, TURNS = 5, 200
PARTITIONS = 4  # of a multiprocessor
ENTRY = "ffmas"
KERNEL = f"""
extern "C" __global__ void __launch_bounds__(384)
{ENTRY}(float* out, long long* cycles, const float* in, int turns) {{
  float a[{ROWS + SPARE}], b[{COLUMNS}], sum[{ROWS * COLUMNS}];
  for (float& x : a) x = *in++;
  for (float& x : b) x = *in++;
  for (float& x : sum) x = *in++;
  __syncthreads();
  const long long start = clock64();
#pragma unroll 1
  for (int turn = 0; turn < turns; turn++) {{
#pragma unroll
    for (int i = 0; i < {ROWS * REPEATS}; i++) {{
#pragma unroll
      for (int j = 0; j < {COLUMNS}; j++) {{
        asm volatile("fma.rn.f32 %0, %1, %2, %0;"
                     : "+f"(sum[i % {ROWS} * {COLUMNS} + j])
                     : "f"(a[i % {ROWS + SPARE}]), "f"(b[j]));
      }}
    }}
  }}
  const long long end = clock64();
  float all = 0;
  for (float x : sum) all += x;
  out[threadIdx.x] = all;
  if (threadIdx.x % 32 == 0) {{
    cycles[threadIdx.x / 32 * 2] = start;
    cycles[threadIdx.x / 32 * 2 + 1] = end;
  }}
}}
"""


@dataclass(frozen=True)
class Ffma:
    """c = a·b + c of registers; `kept` is the mask of slots whose registers stay in the cache."""

    a: int
    b: int
    c: int
    kept: int = 0

    @property
    def word(self) -> int:
        registers = self.c << 16 | self.a << 24 | self.b << 32 | self.c << 64
        return with_control(FFMA | registers, stall=1, reuse=self.kept)


Place = tuple[int, int]  # row and column of a product
Bank = Callable[[Place], int]


def sequences(even: Sequence[int], odd: Sequence[int]) -> Iterator[tuple[str, list[Ffma]]]:
    """Yield names and sequences of FFMAs on registers of the two banks."""
    e, o = even, odd
    both_e, both_o = Ffma(e[0], e[1], e[0]), Ffma(o[0], o[1], o[0])
    three_e, three_o = Ffma(e[0], e[1], e[2]), Ffma(o[0], o[1], o[2])
    two_and_one, one_and_two = Ffma(e[0], e[1], o[0]), Ffma(o[1], o[2], e[2])
    yield "one register throughout", [Ffma(e[0], e[0], e[0])]
    yield "one of each bank", [Ffma(e[0], o[0], e[0])]
    yield "two of one bank", [both_e]
    yield "two of one bank, then two of the other", [both_e, both_o]
    yield "twice two of one bank, then of the other", [both_e, both_e, both_o, both_o]
    yield "two and one", [two_and_one]
    yield "two and one, then one and two", [two_and_one, one_and_two]
    yield "three of one bank", [three_e]
    yield "three of one bank, then three of the other", [three_e, three_o]

    by_row = list(product(range(ROWS), range(COLUMNS)))
    by_column = [(i + di, j) for i in range(0, ROWS, 2) for j in range(COLUMNS) for di in (0, 1)]
    in_blocks = [
        (i + di, j + dj)
        for i, j in product(range(0, ROWS, 2), range(0, COLUMNS, 2))
        for di, dj in ((0, 0), (0, 1), (1, 0), (1, 1))
    ]
    banks = [0, 1] * (len(by_row) // 2)
    random.Random(0).shuffle(banks)
    drawn = dict(zip(by_row, banks, strict=True))
    other: Bank = lambda at: 1 - at[1] % 2  # noqa: E731 - of factors, the bank is their number mod 2
    for name, order, bank in (
        ("row by row, sums in any bank", by_row, drawn.__getitem__),
        ("row by row, a sum in the bank of its column", by_row, lambda at: at[1] % 2),
        ("row by row, a sum in the other bank", by_row, other),
        ("two rows column by column, sums in any bank", by_column, drawn.__getitem__),
        ("two rows column by column, a sum in the other bank", by_column, other),
        ("in blocks of 2×2, a sum in the bank of its column", in_blocks, lambda at: at[1] % 2),
        ("in blocks of 2×2, a sum in the bank of its row", in_blocks, lambda at: at[0] % 2),
        ("in blocks of 2×2, a sum in the other bank", in_blocks, other),
        ("in blocks of 2×2, sums in a checkerboard", in_blocks, lambda at: sum(at) % 2),
    ):
        yield f"12×8 products {name}", _products(order, bank, even, odd, reuse(order))
    nothing = _products(by_row, drawn.__getitem__, even, odd, [0] * len(by_row))
    yield "12×8 products row by row, nothing kept", nothing


def _products(
    order: Sequence[Place], bank: Bank, even: Sequence[int], odd: Sequence[int], kept: Sequence[int]
) -> list[Ffma]:
    free = [iter(even), iter(odd)]
    a = [next(free[i % 2]) for i in range(ROWS)]
    b = [next(free[j % 2]) for j in range(COLUMNS)]
    sums = {at: next(free[bank(at)]) for at in sorted(order)}
    return [Ffma(a[i], b[j], sums[i, j], keep) for (i, j), keep in zip(order, kept, strict=True)]


def compiled(arch: str) -> Artifact:
    return compile_cuda(KERNEL, ENTRY, arch, "register_file.cu")


def ffmas(artifact: Artifact) -> list[Instruction]:
    """The FFMAs of the loop."""
    assert artifact.cubin is not None
    return [one for one in hot_loop(disassemble(artifact.cubin, ENTRY)) if one.root == "FFMA"]


def banks(loop: Sequence[Instruction]) -> tuple[list[int], list[int]]:
    """The even and the odd registers of FFMAs."""
    named = sorted(set[int]().union(*(read | written for read, written in map(effects, loop))))
    return [r for r in named if r % 2 == 0], [r for r in named if r % 2]


def rewritten(artifact: Artifact, sequence: Sequence[Ffma]) -> Artifact:
    """The kernel with its FFMAs replaced by the sequence, over and over."""
    assert artifact.cubin is not None
    cubin, loop = bytearray(artifact.cubin), ffmas(artifact)
    start, _ = section(artifact.cubin, ENTRY)
    assert len(loop) % len(sequence) == 0, "a turn of the loop is not of whole sequences"
    for i, one in enumerate(loop):
        word = sequence[i % len(sequence)].word
        struct.pack_into("<QQ", cubin, start + one.address, word & (1 << 64) - 1, word >> 64)
    return replace(artifact, cubin=bytes(cubin))


def rows(gpu: Gpu) -> Iterator[Row]:
    plain = compiled(gpu.device.arch)
    for name, sequence in sequences(*banks(ffmas(plain))):
        kernel = rewritten(plain, sequence)
        rule = lint(loop := ffmas(kernel)).cycles / len(loop)
        measured = {str(warps): round(cycles(gpu, kernel, warps), 3) for warps in (1, 2, 3)}
        yield {"sequence": name, "rule": round(rule, 3), "warps": measured}


def cycles(gpu: Gpu, kernel: Artifact, warps: int) -> float:
    """Cycles per FFMA of a partition with some warps, in the better of two launches."""
    count = PARTITIONS * warps
    out, given = (gpu.placed(np.zeros(1024, np.float32)) for _ in range(2))
    clocks, found = gpu.placed(np.zeros(2 * count, np.int64)), []
    for _ in range(2):
        args = [out, clocks, given, TURNS]
        gpu.device.launch(kernel, (1, 1, 1), (32 * count, 1, 1), args)
        read = clocks.buffer.read().view(np.int64)
        found.append(int(read[1::2].max() - read[::2].min()))
    return min(found) / (TURNS * ROWS * COLUMNS * REPEATS * warps)


def rules(record: Row) -> dict[str, str]:
    """The table of sequences, with two warps in each partition."""
    lines = [
        [row["sequence"], f"{row['rule']:.2f}", f"{row['warps']['2']:.2f}"]
        for row in record["cycles"]
    ]
    return {"register-file": table(["FFMAs", "cycles, by the rule", "measured"], lines)}


MEASUREMENT = Measurement(
    parts={"cycles": Rows(rows, ("sequence",))}, pages={"machine-code.md": rules}, depth=2
)
