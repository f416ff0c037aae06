"""The compiled code of a program: fast functions at once, slow ones when a warp first parts; from
disk where they have been compiled before."""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from gemmlab import emulator, store
from gemmlab.emulator.native import accesses, barriers, costs, schedule
from gemmlab.emulator.native.builder import Module
from gemmlab.emulator.native.compiler import Library, build, host, version
from gemmlab.emulator.native.kernel import Kernel, Plan
from gemmlab.emulator.native.support import ROUTINES
from gemmlab.emulator.translate import Program, translate

# The modules whose import fills the table of the runtime's functions.
RUNTIME = (costs, accesses, barriers, schedule)
# Slow functions of basic blocks with more instructions than these are compiled each for itself:
# lanes seldom part before a long block and still are parted in it.
LONG = 64


@cache
def _maker() -> list[str]:
    """All that decides what code comes out of a program: this package's text, LLVM, processor."""
    folder = Path(emulator.__file__).parent
    texts = [path.read_bytes() for path in sorted(folder.rglob("*.py"))]
    return [hashlib.sha256(b"\0".join(texts)).hexdigest(), version(), *host()]


def _pointers(address: int, count: int) -> np.ndarray:
    """A table of pointers in memory."""
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address))


@cache
def runtime() -> Library:
    """The runtime's own functions, the same for all programs."""
    name = f"{store.name_of(['runtime', *_maker()])}.o"
    image = store.load(name)
    if image is None:
        module = Module()
        for routine, definition in ROUTINES.items():
            definition.define(module, routine)
        names = ", ".join(f"ptr @{routine}" for routine in ROUTINES)
        table = f"@functions = constant [{len(ROUTINES)} x ptr] [{names}]\n"
        image = build(module.text + table, thoroughly=True)
        store.save(name, image)
    return Library(image, ["functions", "run"])


def routines() -> np.ndarray:
    return _pointers(runtime()["functions"], len(ROUTINES))


class Code:
    """One program for launches whose blocks have rows of whole warps, or not. Raises NotCovered."""

    def __init__(self, ptx: str, entry: str | None, rows: bool, counting: bool) -> None:
        self.program: Program = translate(ptx, entry)
        self.rows, self.counting = rows, counting
        self.name = code_name(ptx, entry, rows, counting)
        self._kernel: Kernel | None = None
        self._libraries: dict[str, Library] = {}
        self._lock = threading.Lock()
        image = self._restore()
        self._libraries["fast"] = library = Library(image, ["fast"])
        self.fast = library["fast"]
        # Entries are 0 until the slow functions are there.
        count = len(self.program.blocks)
        self.slow, self.ready = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        sizes = [len(registers) for registers in self.plan.uniform]
        self.uniform_starts = np.cumsum([0, *sizes])
        self.uniform = np.array([x for some in self.plan.uniform for x in some], np.int64)

    def _restore(self) -> bytes:
        """The fast functions; what goes with them is in front."""
        data = store.load(f"{self.name}.fast")
        if data is None:
            kernel = self._traced()
            plan = json.dumps(asdict(kernel.plan), default=sorted)
            data = plan.encode() + b"\n" + build(kernel.fast_text)
            store.save(f"{self.name}.fast", data)
        head, _, image = data.partition(b"\n")
        self.plan = Plan.from_json(json.loads(head))
        return image

    def _traced(self) -> Kernel:
        if self._kernel is None:
            self._kernel = Kernel(self.program, self.rows, self.counting)
        return self._kernel

    def compile_slow(self, block: int) -> None:
        """Make sure of the slow function of a basic block, and of what parted warps need."""
        with self._lock:
            blocks = self.program.blocks
            short = [i for i, b in enumerate(blocks) if b.last - b.first <= LONG]
            if "slow" not in self._libraries:
                library = self._add_slow("slow", short)
                self.ready[:] = _pointers(library["ready"], len(blocks))
            if not self.slow[block]:
                self._add_slow(f"slow-{block}", [block])

    def _add_slow(self, suffix: str, blocks: list[int]) -> Library:
        first = suffix == "slow"
        image = store.load(f"{self.name}.{suffix}")
        if image is None:
            image = build(self._traced().slow(blocks, first))
            store.save(f"{self.name}.{suffix}", image)
        library = Library(image, ["slow", "ready"] if first else ["slow"])
        self._libraries[suffix] = library
        if blocks:
            self.slow[blocks] = _pointers(library["slow"], len(blocks))
        return library


def code_name(ptx: str, entry: str | None, rows: bool, counting: bool = True) -> str:
    return store.name_of(["native", *_maker(), ptx, entry or "", str(rows), str(counting)])


@lru_cache(maxsize=64)
def code_of(ptx: str, entry: str | None, rows: bool, counting: bool = True) -> Code:
    """The code of an entry of a PTX text. Raises NotCovered."""
    return Code(ptx, entry, rows, counting)


def is_compiled(ptx: str, entry: str | None, rows: bool) -> bool:
    """Whether the code is on disk."""
    return (store.folder() / f"{code_name(ptx, entry, rows)}.fast").is_file()
