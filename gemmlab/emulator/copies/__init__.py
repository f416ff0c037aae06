"""Asynchronous copies: cp.async, bulk copies and reductions, and the tensor maps that they use."""
