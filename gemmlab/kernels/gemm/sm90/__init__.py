"""Kernels of a float32 product on Hopper GPUs, for the library and the top rungs.

| file            | what it has                                                               |
|-----------------|---------------------------------------------------------------------------|
| `config.py`     | schemes (`fp16x3`, `bf16x6`) and configurations; needs no CuTe DSL        |
| `pack.py`       | float32 operands to 16-bit parts; `pack_k_major.py` if k is contiguous,   |
|                 | `pack_deep.py` if they are very deep                                      |
| `mainloop.py`   | the product: what its warps do, and who waits for whom                    |
| `k_tiles.py`    | the products of parts of a tile of A and of B, in chains                  |
| `ring.py`       | its stages in shared memory, and the producer that fills them             |
| `scheduling.py` | the order of stages, of tiles, and of consumer warpgroups                 |
| `tiles.py`      | tiles in shared memory, TMA copies                                        |
| `totals.py`     | a second level of sums, for `bf16x6`                                      |
| `epilogue.py`   | undoes the scaling; alpha, beta; `staging.py` stores C                    |
| `repack.py`     | packs again in bfloat16 if float16 is too narrow                          |
| `recompute.py`  | doubtful sums, and those of infinities and NaNs, in float32 or in TF32    |
|                 | (`notes.py`, `recompute_groups.py`)                                       |
| `finish.py`     | those of deep products, shared by all blocks of a last launch             |
|                 | (`listing.py`)                                                            |
| `reporting.py`  | what a product has counted; clears the counts                             |
| `repair.py`     | rows and columns with infinities and NaNs, after a kernel of a rung       |
| `streamed.py`   | a product with one packed operand; the other one is split on the fly      |
|                 | (`streamed_ring.py`, `streaming.py`, `streamed_output.py`,                |
|                 | `streamed_config.py`)                                                     |
| `direct.py`     | a product without packing: operands are split into TF32 parts on the fly  |
|                 | (`ahead.py`, `splitting.py`, `items.py`, `storing.py`, `rescue.py`,       |
|                 | `tf32.py`, `direct_config.py`)                                            |
| `instead.py`    | the same in a kernel of another method, for what that one cannot compute  |
| `fma.py`        | a product of float32 multiply-adds, of any alignment (`fma_config.py`)    |
| `gemv.py`       | a product with a vector, likewise (`gemv_config.py`)                      |
| `shares.py`     | C from the sums of a cluster's blocks                                     |
| `add_slices.py` | C from products over slices of k                                          |
| `pdl.py`        | programmatic dependent launch                                             |
"""
