"""Compiled functions for operations that NumPy lacks: ufuncs, which `native.fused` makes.

Each is None as long as NumPy's operations are used instead. The bits are the same.
"""

from __future__ import annotations

from typing import Any

fma32: Any = None  # (a, b, c) -> a·b + c, rounded once
add_product: Any = None  # (x, y, scale, sum) -> sum + the integer part of x·y·scale
largest_sum: Any = None  # (x, y, largest) -> the larger one of x + y and largest, of int16
