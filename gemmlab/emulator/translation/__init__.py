"""From a PTX function to a program of Python functions, one for each basic block. Most instructions
are a row of a table (`isa.py`); `emit` writes the others. Here is also what is found out about a
function on the way: loads that the assembler joins, loops that only wait.
"""
