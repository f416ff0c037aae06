"""Hardware counters under Nsight Compute's names: counting rules for memory instructions, totals
per launch or source line, counters of tensor cores and copy engine, and address traces.
"""
