"""Executes a program on a chunk of thread blocks: the machine, the scheduling order, thread and
block indices, and the detection of endless loops and livelocks.
"""
