"""Hardware counters under Nsight Compute's names: counting rules for memory instructions, the raw
counts of a launch, totals per launch or source line, and counters of tensor cores and copy engine.
"""
