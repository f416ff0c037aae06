"""Check array arguments against the C++ types of a kernel's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.errors import DTypeError


def check_dtypes(artifact: Artifact, args: Sequence[Any]) -> None:
    """Raise DTypeError if an array or NumPy scalar does not have its parameter's type.

    A parameter of unknown type accepts anything, as does a pointer to characters (as in C).
    Signedness of integers is ignored, a pointer to wider integers accepts arrays of 8-bit and
    16-bit numbers, and types that NumPy lacks are passed as integers of the same size.
    """
    pairs = zip(artifact.parameters, args, strict=False)  # the count is checked elsewhere
    for number, (parameter, arg) in enumerate(pairs):
        if not isinstance(arg, (np.ndarray, np.generic)) or not parameter.dtype:
            continue
        wanted, is_array = np.dtype(parameter.dtype), arg.ndim > 0
        # A number for a pointer is an address. An array for a number is rejected later.
        if is_array != parameter.is_pointer or _same(wanted, arg.dtype, is_array):
            continue
        name = f", {parameter.name}" if parameter.name else ""
        rule = f"a pointer to {wanted}, not an array of" if is_array else f"{wanted}, not"
        raise DTypeError(f"argument {number}{name}: the kernel takes {rule} {arg.dtype}")


def _same(wanted: np.dtype, given: np.dtype, is_array: bool) -> bool:
    if given.kind == "V" or (is_array and wanted in (np.int8, np.uint8)):
        return True
    if given.kind == "c":  # a pair of numbers, like float2
        given = np.dtype(f"f{given.itemsize // 2}")
    if is_array and wanted.kind in "iu" and given.itemsize <= 2 < wanted.itemsize:
        return True
    kinds = "iub" if wanted.kind in "iub" else "f" if wanted.itemsize > 2 else "fiu"
    return wanted.itemsize == given.itemsize and given.kind in kinds
