"""The native tier compiles PTX to machine code with LLVM. A warp runs as vectors of 32 lanes.

`values.py` defines SSA values of LLVM IR with the interface of NumPy arrays, and `ufuncs.py` their
NumPy functions. `tracer.py` runs the NumPy tier's code of a basic block once on such values, which
emits the block's IR; `context.py` holds its state. That code calls modules of the NumPy tier, which
`memory.py`, `collectives.py`, `numerics.py`, `matrices.py`, `wgmma.py`, `copies.py` and
`mbarriers.py` replace. `ends.py` emits terminators, `kernel.py` assembles a program, in memory that
`traced_kernel.py` lays out, and `code.py` compiles and caches it. `products.py` emits one function
per matrix-product shape. `fallback.py` and `warp_machine.py` let the NumPy tier execute an
instruction without native code.

The runtime is emitted with the same values: `accesses.py` and `costs.py` check, count and perform
memory accesses; `schedule.py` and `barriers.py` schedule blocks, warps and lanes. `launch.py` runs
a launch in the memory of `core.py`, and `faults.py` turns a fault into an error message.
"""
