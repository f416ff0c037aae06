"""printf of device code: `vprintf(format, arguments)`, whose arguments lie in the thread's local
memory as C passes them (CUDA C++ Programming Guide, "Formatted Output")."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmlab.emulator.arithmetic.lanes import Mask, Value, three_axes
from gemmlab.emulator.memory.arena import GlobalMemory
from gemmlab.emulator.memory.spaces import LOCAL_WINDOW

if TYPE_CHECKING:
    from gemmlab.emulator.execution.machine import Machine

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<type>[diouxXfFeEgGaAcsp%])"
)
LONG = ("l", "ll", "j", "z", "t")


class Screen:
    """Where a launch prints: stdout as it goes on, unless it may still have to start again."""

    def __init__(self) -> None:
        self.held: list[str] | None = None

    def write(self, text: str) -> None:
        if self.held is None:
            sys.stdout.write(text)
        else:
            self.held.append(text)

    def hold(self) -> None:
        """Keep back what is printed from now on."""
        self.held = []

    def drop(self) -> None:
        """Forget what was kept back: the launch starts again."""
        self.held = None

    def release(self) -> None:
        """Print what was kept back; the launch does not start again."""
        held, self.held = self.held or [], None
        sys.stdout.write("".join(held))


def vprintf(m: Machine, where: Value, arguments: Value, mask: Mask | None) -> np.ndarray:
    """Print for each active thread, in their order; gives the number of arguments of each."""
    on, local = m.active(mask), m.space_local.data
    formats, buffers = (m.chunk.spread(three_axes(x)) for x in (where, arguments))
    counts = np.zeros(on.shape, np.uint32)
    for at in map(tuple, np.argwhere(on)):
        start = int(buffers[at]) - LOCAL_WINDOW
        values = Values(m.launch.memory, local[at][start:].tobytes())
        m.launch.screen.write(values.fill(_string(m.launch.memory, int(formats[at]))))
        counts[at] = values.count
    return counts


def _string(memory: GlobalMemory, address: int) -> str:
    """The text at an address of global memory, up to its zero; "(null)" where there is none."""
    characters = iter(lambda: memory.span(address, 1), None)
    text = bytearray()
    for byte in characters:
        if byte[0] == 0:
            return text.decode(errors="replace")
        text.append(byte[0])
        address += 1
    return "(null)"


class Values:
    """The arguments of one call, taken one after another."""

    def __init__(self, memory: GlobalMemory, data: bytes) -> None:
        self.memory, self.data, self.end, self.count = memory, data, 0, 0

    def take(self, kind: str) -> Any:
        """The next argument, a number of struct's `kind`; each lies at a multiple of its size."""
        size = struct.calcsize(kind)
        start = -(-self.end // size) * size
        self.end, self.count = start + size, self.count + 1
        return struct.unpack(kind, self.data[start : self.end].ljust(size, b"\0"))[0]

    def fill(self, text: str) -> str:
        return _SPECIFIER.sub(self._one, text)

    def _one(self, found: re.Match[str]) -> str:
        type_ = found["type"]
        if type_ == "%":
            return "%"
        form = f"%{found['flags']}" + "".join(self._sizes(found))
        value, form = self._value(type_, found["length"] in LONG, form)
        text: str = form % value
        return text

    def _value(self, type_: str, is_long: bool, form: str) -> tuple[Any, str]:
        """What Python's % operator takes for one specifier."""
        match type_:
            case "s":
                return _string(self.memory, self.take("Q")), form + "s"
            case "p":
                return hex(self.take("Q")), form + "s"
            case "c":
                return chr(self.take("i") & 255), form + "c"
            case "a" | "A":
                return float(self.take("d")).hex(), form.partition(".")[0] + "s"
            case "d" | "i":
                return self.take("q" if is_long else "i"), form + "d"
            case "u" | "o" | "x" | "X":
                return self.take("Q" if is_long else "I"), form + type_.replace("u", "d")
        return self.take("d"), form + type_

    def _sizes(self, found: re.Match[str]) -> Iterator[str]:
        """Width and precision, either of which may be an argument."""
        yield str(self.take("i")) if found["width"] == "*" else found["width"]
        if found["precision"]:
            yield f".{self.take('i')}" if found["precision"] == ".*" else found["precision"]
