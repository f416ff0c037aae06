"""The native tier: PTX to machine code by LLVM, one warp as vectors of 32 lanes.

`values.py` holds values of LLVM IR that behave as NumPy arrays, so that the NumPy tier's code of a
basic block, run once by `tracer.py`, writes its IR. `memory.py` and `collectives.py` stand in for what
that code calls, `ends.py` moves warps between blocks, `kernel.py` puts a program together. The
runtime, written with the same values, is in `costs.py` (what accesses cost), `accesses.py` and
`schedule.py` (blocks, warps, lanes, barriers). `launch.py` runs it all; `faults.py` says what went wrong.
"""
