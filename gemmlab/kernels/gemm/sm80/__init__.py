"""The library's product on GPUs of compute capability 8.0, which have neither wgmma nor TMA.

| file          | content                                                      |
|---------------|--------------------------------------------------------------|
| `config.py`   | the tile of C that a block computes, and the rules for it    |
| `mainloop.py` | the kernel that multiplies packed operands, with `mma.sync`  |

Packing and the end of a tile are those of `sm90`, which need no instruction of Hopper.
"""
