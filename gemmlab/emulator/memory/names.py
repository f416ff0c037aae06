"""Names of places in shared memory, for messages."""

from __future__ import annotations

import re

from gemmlab.emulator.memory.arena import element
from gemmlab.emulator.program import Program
from gemmlab.ptx import layout

_LOCAL_NAME = re.compile(r"_ZZ.*E\d+(\w+)")  # mangled C++ name of a local variable


def shared_place(program: Program, address: int, itemsize: int = 0) -> str:
    """A shared address as an element of the last variable that starts before it."""
    offsets = layout.shared_offsets(program.module, program.function)
    sizes = {v.name: v.size for v in layout.shared_variables(program.module, program.function)}
    below = [(offset, name) for name, offset in offsets.items() if offset <= address]
    offset, name = max(below, default=(0, "shared memory"))
    return element(plain_name(name), address - offset, sizes.get(name, 0), itemsize)


def plain_name(name: str) -> str:
    """The name of a variable in the source."""
    mangled = _LOCAL_NAME.fullmatch(name)
    return mangled[1] if mangled else name
