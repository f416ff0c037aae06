"""The native tier: PTX to machine code by LLVM, one warp as vectors of 32 lanes.

`values.py` holds values of LLVM IR that behave as NumPy arrays do (`ufuncs.py` has the functions).
The NumPy tier's code of a basic block, run once on such values by `tracer.py`, writes its IR;
`memory.py`, `collectives.py`, `numerics.py`, `matrices.py`, `wgmma.py`, `copies.py`, `mbarriers.py`
stand in for what that code calls, `ends.py` moves warps on to the next block, `kernel.py` puts a
program together, `code.py` compiles and keeps it. `products.py` multiplies matrices, in a function
for each shape. `handover.py` leaves an instruction that has no code here to the NumPy tier.

The runtime is written with the same values: `accesses.py` and `costs.py` check, count and move
memory, `schedule.py` and `barriers.py` run blocks, warps and lanes. `launch.py` starts it all, and
`faults.py` says what went wrong.
"""
