"""Arrays against the C++ types of the parameters that they are given for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmlab.compile.artifact import Artifact
from gemmlab.errors import DTypeError


def check_dtypes(artifact: Artifact, args: Sequence[Any]) -> None:
    """Raise DTypeError for an array or a NumPy scalar of another type than its parameter's.

    A parameter whose type is not known takes anything, and so does a pointer to characters, as in
    C; integers may be signed or not, words hold numbers of 8 or 16 bits, and what NumPy has no type
    for is its bits.
    """
    pairs = zip(artifact.parameters, args, strict=False)  # how many there are is checked elsewhere
    for number, (parameter, arg) in enumerate(pairs):
        if not isinstance(arg, (np.ndarray, np.generic)) or not parameter.dtype:
            continue
        wanted, is_array = np.dtype(parameter.dtype), arg.ndim > 0
        # A number for a pointer is an address; what binds an array for a number refuses it.
        if is_array != parameter.is_pointer or _same(wanted, arg.dtype, is_array):
            continue
        name = f", {parameter.name}" if parameter.name else ""
        told = f"a pointer to {wanted}, not an array of" if is_array else f"{wanted}, not"
        raise DTypeError(f"argument {number}{name}: the kernel takes {told} {arg.dtype}")


def _same(wanted: np.dtype, given: np.dtype, is_array: bool) -> bool:
    if given.kind == "V" or (is_array and wanted in (np.int8, np.uint8)):
        return True
    if given.kind == "c":  # two numbers, as float2 has them
        given = np.dtype(f"f{given.itemsize // 2}")
    if is_array and wanted.kind in "iu" and given.itemsize <= 2 < wanted.itemsize:
        return True
    kinds = "iub" if wanted.kind in "iub" else "f" if wanted.itemsize > 2 else "fiu"
    return wanted.itemsize == given.itemsize and given.kind in kinds
