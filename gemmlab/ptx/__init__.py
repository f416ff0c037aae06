"""The PTX front end: a lexer and a parser that produce a module of functions (`ir.py`), inlining of
device function calls, and the layout of variables in their state spaces.
"""
