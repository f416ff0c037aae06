"""A launch and the state of its threads: what all blocks share, the threads of a chunk of blocks,
their indices in the grid, and the text that they print.
"""
