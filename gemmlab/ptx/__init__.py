"""The front end: PTX text to data. A lexer and a parser make a module of functions (`ir.py`), calls
of device functions are expanded in place, and each variable gets its offset in its state space.
"""
