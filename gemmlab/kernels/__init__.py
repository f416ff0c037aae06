"""Device code and its lessons, one idea per file.

A *ladder* is the sequence of kernels for one problem; a *rung* is one of them, with its lesson in
the docstring of its file. `ladder.py` has their order. In the *row layout* A, B and C are
row-major; in the *course layout* A is row-major, B and C are column-major.

Names in every kernel:

| name             | meaning                                                                       |
|------------------|-------------------------------------------------------------------------------|
| `mA`, `sA`, `rA` | a tensor in global memory, in shared memory, in registers                     |
| `BM`, `BN`, `BK` | rows and columns of C per block, and the depth of its tiles along k           |
| `WM`, `WN`       | rows and columns of C per warp                                                |
| `TM`, `TN`       | rows and columns of C per thread                                              |
| `bx`, `tx`, …    | index of the block in the grid, of the thread in the block                    |
| `k0`, `kk`       | where a tile begins along k, and a step within it                             |
| four, quad       | four consecutive float32 elements, and a 128-bit access to them               |
| wide             | with 128-bit accesses; needs alignment and whole tiles                        |

Hardware terms: a *request* is one memory instruction of one warp. Global memory serves it in
*sectors* of 32 bytes, shared memory in *wavefronts*: passes in which each of the 32 banks delivers
one 4-byte word. A *limiter* is what keeps a kernel from being faster.
"""
