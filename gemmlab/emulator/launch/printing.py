"""Device-side printf. Compilers emit `vprintf(format, arguments)`, where `arguments` points to the
C variadic arguments in local memory (CUDA C++ Programming Guide, "Formatted Output")."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from gemmlab.emulator.memory.addresses import WINDOW_STARTS
from gemmlab.emulator.memory.arena import GlobalMemory

_SPECIFIER = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<type>[diouxXfFeEgGaAcsp%])"
)
LONG = ("l", "ll", "j", "z", "t")


class Screen:
    """The output of a launch. Text is held back while the launch may still have to restart."""

    def __init__(self) -> None:
        self.held: list[str] | None = None

    def write(self, text: str) -> None:
        if self.held is None:
            sys.stdout.write(text)
        else:
            self.held.append(text)

    def hold(self) -> None:
        """Hold back all text from this call on."""
        self.held = []

    def drop(self) -> None:
        """Discard the held text because the launch restarts."""
        self.held = None

    def release(self) -> None:
        """Print the held text: the launch will not restart."""
        held, self.held = self.held or [], None
        sys.stdout.write("".join(held))


def vprintf(
    screen: Screen,
    memory: GlobalMemory,
    stacks: np.ndarray,
    formats: np.ndarray,
    buffers: np.ndarray,
    on: np.ndarray,
) -> np.ndarray:
    """Print once per active thread, in thread order. Returns each thread's number of arguments.

    stacks: local memory, (blocks, warps, 32, bytes). formats, buffers: addresses of the format
    string, in global memory, and of the arguments, in local memory. on: the active threads.
    """
    counts = np.zeros(on.shape, np.uint32)
    for at in map(tuple, np.argwhere(on)):
        start = int(buffers[at]) - WINDOW_STARTS["local"]
        values = Values(memory, stacks[at][start:].tobytes())
        screen.write(values.fill(_string(memory, int(formats[at]))))
        counts[at] = values.count
    return counts


def _string(memory: GlobalMemory, address: int) -> str:
    """The null-terminated string at a global address; "(null)" if the address is invalid."""
    characters = iter(lambda: memory.span(address, 1), None)
    text = bytearray()
    for byte in characters:
        if byte[0] == 0:
            return text.decode(errors="replace")
        text.append(byte[0])
        address += 1
    return "(null)"


class Values:
    """Reads the variadic arguments of one call in order."""

    def __init__(self, memory: GlobalMemory, data: bytes) -> None:
        self.memory, self.data, self.end, self.count = memory, data, 0, 0

    def take(self, kind: str) -> Any:
        """The next argument. kind: a format character of `struct`. Arguments are aligned to their
        size."""
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
        """The argument and the format for Python's % operator that match one specifier."""
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
        """Width and precision. A "*" takes either from the arguments."""
        yield str(self.take("i")) if found["width"] == "*" else found["width"]
        if found["precision"]:
            yield f".{self.take('i')}" if found["precision"] == ".*" else found["precision"]
