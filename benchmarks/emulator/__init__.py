"""The emulator's tiers against each other, and against Numba's CUDA simulator. Two minutes, no GPU.

    python -m benchmarks emulator benchmarks/emulated/speed.json

Needs an otherwise idle machine. Numba is timed if the extra `speed` is installed. Each number is
the minimum over several launches of compiled code with warm buffers: processor time for one thread,
wall-clock time for several. Runs that are compared alternate.
"""

from benchmarks.emulator import launches, tables
from benchmarks.measurement import Measurement, Rows

MEASUREMENT = Measurement(
    parts={
        "timings": Rows(launches.timings, ("kernel", "size", "way")),
        "compiling": {launches.COMPILED: launches.compiling},
    },
    head=launches.head,
    pages={"emulator.md": tables.speed},
    depth=2,
)
