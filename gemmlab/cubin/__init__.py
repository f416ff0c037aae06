"""Read, cost and rewrite machine code: listings of nvdisasm, control bits, loops, register order.

It needs no GPU and imports neither compilers nor the emulator.
"""
