"""Source positions of the CuTe DSL's operations, each found once.

The DSL 4.8.1 finds an operation's line by walking the position table of its Python code from the
start (`_fast_frameinfo` in cutlass/_mlir_helpers/op.py). Unrolled loops repeat the same places
thousands of times, and a third of a compilation goes into that walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


@contextmanager
def found_once() -> Iterator[None]:
    """Within the context, the DSL looks up each place in the code once, with the same result."""
    from cutlass._mlir_helpers import op

    find = getattr(op, "_fast_frameinfo", None)
    if find is None:  # another version of the DSL
        yield
        return
    # By identity, since hashing a code object reads all of it. The entry keeps the code alive.
    found: dict[tuple[int, int], tuple[CodeType, Any]] = {}

    def find_once(frame: FrameType) -> Any:
        place = id(frame.f_code), frame.f_lasti
        if place not in found:
            found[place] = frame.f_code, find(frame)
        return found[place][1]

    op._fast_frameinfo = find_once
    try:
        yield
    finally:
        op._fast_frameinfo = find
