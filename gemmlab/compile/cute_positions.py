"""Cached source positions for the CuTe DSL.

CuTe DSL 4.8.1 records a source position with each operation (cutlass/_mlir_helpers/op.py). It walks
up the stack to the first frame outside the DSL, walks the position table of that frame's code from
the start, and makes a location of what it finds. Unrolled loops look up the same positions
thousands of times, which takes almost half of the tracing time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

_REPLACED = ("_find_user_frame", "_fast_frameinfo", "_get_location_from_frame_info")


@contextmanager
def found_once() -> Iterator[None]:
    """Within the context, the DSL looks up each position once. The results are unchanged.

    The context is for one compilation: locations belong to its MLIR context.
    """
    from cutlass._mlir_helpers import op

    if not all(hasattr(op, name) for name in (*_REPLACED, "_is_framework_stack_frame")):
        yield  # another version of the DSL
        return
    originals = [getattr(op, name) for name in _REPLACED]
    of_the_dsl = op._is_framework_stack_frame
    _, describe, locate = originals
    # Keyed by identity: hashing a code object reads all of it. The values keep the keys alive.
    framework: dict[int, tuple[CodeType, bool]] = {}
    infos: dict[tuple[int, int], tuple[CodeType, Any]] = {}
    locations: dict[int, tuple[Any, Any]] = {}

    def find_user_frame(start: FrameType | None) -> FrameType | None:
        frame = start
        while frame is not None:
            code = frame.f_code
            known = framework.get(id(code))
            if known is None:
                known = framework[id(code)] = code, of_the_dsl(frame)
            if not known[1]:
                return frame
            frame = frame.f_back
        return start

    def describe_once(frame: FrameType) -> Any:
        code = frame.f_code
        position = id(code), frame.f_lasti
        known = infos.get(position)
        if known is None:
            known = infos[position] = code, describe(frame)
        return known[1]

    def locate_once(info: Any) -> Any:
        known = locations.get(id(info))
        if known is None:
            known = locations[id(info)] = info, locate(info)
        return known[1]

    for name, function in zip(
        _REPLACED, (find_user_frame, describe_once, locate_once), strict=True
    ):
        setattr(op, name, function)
    try:
        yield
    finally:
        for name, function in zip(_REPLACED, originals, strict=True):
            setattr(op, name, function)
