"""What hardware counts, under Nsight Compute's names: the rules for one warp's memory instruction,
the totals of a launch or of a line of text, the pipes of tensor cores and copy engine, and a trace
of the addresses behind the numbers.
"""
