"""Machine code as data: what nvdisasm lists, its control bits, what a loop costs, and a rewriting.

It needs no GPU, and knows neither compilers nor the emulator.
"""
