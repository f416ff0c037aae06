"""Check array arguments against the C++ types of a kernel's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.errors import DTypeError, LaunchError


def check_types(artifact: Artifact, args: Sequence[Any]) -> None:
    """Raise DTypeError if an array or NumPy scalar does not have its parameter's type.

    Also if an array's numbers are not in the byte order of a GPU.

    Raises LaunchError for another number of arguments, and for an array in place of a number or a
    float in place of an integer.

    A parameter of unknown type accepts anything, as does a pointer to characters (as in C).
    Signedness of integers is ignored, a pointer to wider integers accepts arrays of 8-bit and
    16-bit numbers, and types that NumPy lacks are passed as integers of the same size.
    """
    declared = f"; the kernel is {artifact.signature}"
    if len(args) != len(artifact.parameters):
        needed = f"the kernel takes {len(artifact.parameters)} arguments, {len(args)} were given"
        raise LaunchError(needed + declared)
    for number, (parameter, arg) in enumerate(zip(artifact.parameters, args, strict=True)):
        if isinstance(arg, np.ndarray) and not arg.dtype.isnative:
            rule = "the byte order of numbers on a GPU is little-endian"
            raise DTypeError(f"argument {number} is an array of {arg.dtype.str}; {rule}")
        if not parameter.dtype or not isinstance(arg, (np.ndarray, np.generic, float)):
            continue
        named = f"argument {number}{f', {parameter.name}' if parameter.name else ''}: the kernel"
        wanted = np.dtype(parameter.dtype)
        if isinstance(arg, float) and not isinstance(arg, np.generic):
            if wanted.kind != "f" or parameter.is_pointer:
                what = "an array" if parameter.is_pointer else "an integer"
                raise LaunchError(f"{named} takes {what}, not {arg!r}{declared}")
            continue
        is_array = arg.ndim > 0
        if is_array and not parameter.is_pointer:
            raise LaunchError(f"{named} takes a number, not an array{declared}")
        # A number for a pointer is an address.
        if is_array != parameter.is_pointer or _same(wanted, arg.dtype, is_array):
            continue
        rule = f"a pointer to {wanted}, not an array of" if is_array else f"{wanted}, not"
        raise DTypeError(f"{named} takes {rule} {arg.dtype}{declared}")


def _same(wanted: np.dtype, given: np.dtype, is_array: bool) -> bool:
    if given.kind == "V" or (is_array and wanted in (np.int8, np.uint8)):
        return True
    if given.kind == "c":  # a pair of numbers, like float2
        given = np.dtype(f"f{given.itemsize // 2}")
    if is_array and wanted.kind in "iu" and given.itemsize <= 2 < wanted.itemsize:
        return True
    kinds = "iub" if wanted.kind in "iub" else "f" if wanted.itemsize > 2 else "fiu"
    return wanted.itemsize == given.itemsize and given.kind in kinds
