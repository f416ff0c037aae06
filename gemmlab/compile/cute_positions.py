"""Cached source positions for the CuTe DSL.

CuTe DSL 4.8.1 records a source position with each operation. To find it, the DSL walks the position
table of the Python code from the start (`_fast_frameinfo` in cutlass/_mlir_helpers/op.py). Unrolled
loops look up the same positions thousands of times, which takes a third of the compile time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


@contextmanager
def found_once() -> Iterator[None]:
    """Within the context, the DSL looks up each position once. The results are unchanged."""
    from cutlass._mlir_helpers import op

    find = getattr(op, "_fast_frameinfo", None)
    if find is None:  # another version of the DSL
        yield
        return
    # Keyed by identity: hashing a code object reads all of it. The value keeps the code alive.
    found: dict[tuple[int, int], tuple[CodeType, Any]] = {}

    def find_once(frame: FrameType) -> Any:
        position = id(frame.f_code), frame.f_lasti
        if position not in found:
            found[position] = frame.f_code, find(frame)
        return found[position][1]

    op._fast_frameinfo = find_once
    try:
        yield
    finally:
        op._fast_frameinfo = find
