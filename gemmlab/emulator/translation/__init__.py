"""Translates a PTX function to a program of Python functions, one per basic block. Most
instructions are a row of the table in `isa.py`; `emit` handles the others. The package also holds
the analyses that the translation needs: loads and stores that the assembler joins, and spin
loops."""
