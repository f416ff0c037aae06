"""Compile and cache a program. Fast functions are compiled at once; slow functions when a warp
first diverges. Both are compiled quickly first, and optimized when they have run for a while."""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from gemmlab.core import disk_cache
from gemmlab.emulator.native import runtime
from gemmlab.emulator.native.compiler import OPTIMIZED, QUICK, Library, build, host, version
from gemmlab.emulator.native.fallback import is_known_call
from gemmlab.emulator.native.kernel import Kernel
from gemmlab.emulator.native.products import Product
from gemmlab.emulator.native.support import ROUTINES
from gemmlab.emulator.native.traced_kernel import Metadata, site_offsets
from gemmlab.emulator.native.values import NotCovered
from gemmlab.emulator.program import Program
from gemmlab.emulator.translation.spins import is_poll
from gemmlab.ptx.opcodes import ATOMICS

# A basic block with more instructions than this has its slow function compiled separately. Lanes
# seldom diverge before a long block and are still diverged inside it.
LONG = 64
# Processor time of launches after which a kernel is optimized. That takes twice as long as a quick
# compilation, 0.3 to 0.5 s more for `float4`, and saves a quarter to a third of the run time, so it
# pays off after one to two seconds. One launch of `float4` at 512³ takes half the processor time,
# compilation included, of code that is optimized at once, and four launches at 1024³ 0.8 of it.
WORTH_OPTIMIZING_S = 1.0
# Quick code keeps every value of a basic block on the stack. Longer IR is optimized at once, so
# that this takes at most about 1 MB.
LONGEST_QUICK_TEXT = 8_000_000


def _build_inputs() -> list[str]:
    """Return everything besides the program that determines the generated code."""
    return [_source_digest(), version(), *host()]


@cache
def _source_digest() -> str:
    """Return a digest of the source of the emulator and of the PTX front end."""
    folder = Path(__file__).parents[1]
    texts = [
        path.read_bytes()
        for part in (folder, folder.with_name("ptx"))
        for path in sorted(part.rglob("*.py"))
    ]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def _pointers(address: int, count: int) -> np.ndarray:
    """View a table of pointers in memory."""
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address))


def kept(
    what: str, text: Callable[[], str], level: int = QUICK, *, thoroughly: bool = False
) -> bytes:
    """Return object code from the disk cache, or build it from `text`."""
    name = f"{disk_cache.name_of([what, *_build_inputs()])}.o"
    image = disk_cache.load(name)
    if image is None:
        image = build(text(), level, thoroughly)
        disk_cache.save(name, image)
    return image


_loading = threading.Lock()


def runtime_library() -> Library:
    """Return the compiled runtime."""
    with _loading:
        return _runtime_library()


@cache  # under `_loading`: two threads would load two libraries and free the code of one
def _runtime_library() -> Library:
    return Library(kept("runtime", runtime.text, thoroughly=True), ["functions", "run"])


def routines() -> np.ndarray:
    """Return the addresses of the runtime's functions, in order."""
    return _pointers(runtime_library()["functions"], len(ROUTINES))


def product_library(product: Product) -> Library:
    """Return the compiled function that multiplies matrices of one shape."""
    with _loading:
        return _product_library(product)


@cache
def _product_library(product: Product) -> Library:
    return Library(kept(f"product {product!r}", lambda: product.text, OPTIMIZED), ["multiply"])


class Code:
    """A compiled program. `rows`: whether a warp never spans two rows of its thread block. Raises
    NotCovered."""

    def __init__(self, program: Program, rows: bool) -> None:
        self.program, self.rows = program, rows
        self.name = code_name(program, rows)
        self.sites = site_offsets(self.program)
        self.blocks_wait = blocks_wait(self.program)
        self.blocks_interact = self.blocks_wait or any(
            is_known_call(i) for i in self.program.function.instructions
        )
        self._kernel: Kernel | None = None
        self._libraries: dict[str, Library] = {}
        self._blocks: dict[str, list[int]] = {}  # of each library of slow functions
        self._replaced: list[Library] = []  # other threads may be running their code
        self._lock = threading.Lock()
        self._run_s = 0.0
        self.level = OPTIMIZED if is_saved(self.name, OPTIMIZED) else QUICK
        self._load_fast()
        products = [product_library(product) for product in self.metadata.products]
        self.products = np.array([library["multiply"] for library in products], np.uint64)
        # Entries are null until slow functions are compiled.
        count = len(self.program.blocks)
        self.slow, self.ready = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        sizes = [len(registers) for registers in self.metadata.uniform]
        self.uniform_starts = np.cumsum([0, *sizes])
        self.uniform = np.array([x for some in self.metadata.uniform for x in some], np.int64)

    def _load_fast(self) -> None:
        """Load or build the fast functions. The cached file starts with the metadata as one line of
        JSON."""
        name = _file_name(self.name, "fast", self.level)
        data = disk_cache.load(name)
        if data is None:
            kernel = self._traced()
            if len(kernel.fast_text) > LONGEST_QUICK_TEXT:
                self.level = OPTIMIZED
                name = _file_name(self.name, "fast", self.level)
            metadata = json.dumps(asdict(kernel.metadata), default=sorted)
            data = metadata.encode() + b"\n" + build(kernel.fast_text, self.level)
            disk_cache.save(name, data)
        head, _, image = data.partition(b"\n")
        self.metadata = Metadata.from_json(json.loads(head))
        self.fast = self._add("fast", Library(image, ["fast"]))["fast"]

    def _traced(self) -> Kernel:
        if self._kernel is None:
            self._kernel = Kernel(self.program, self.rows)
        return self._kernel

    def has_run(self, seconds: float) -> None:
        """Add to the processor time of the launches. Once there is enough, optimize all functions.

        Threads that are running the old functions run on; `fast` and `slow` have the new ones.
        """
        self._run_s += seconds
        if self.level == OPTIMIZED or self._run_s < WORTH_OPTIMIZING_S:
            return
        if self._lock.acquire(blocking=False):  # else another thread is compiling
            try:
                self.level = OPTIMIZED
                self._load_fast()
                for suffix, blocks in self._blocks.items():
                    self._load_slow(suffix, blocks)
            finally:
                self._lock.release()

    def compile_slow(self, block: int) -> None:
        """Compile the slow function of a basic block and the functions that diverged warps need."""
        with self._lock:
            blocks = self.program.blocks
            if "slow" not in self._libraries:
                short = [i for i, b in enumerate(blocks) if b.last - b.first <= LONG]
                self._load_slow("slow", short)
            if not self.slow[block]:
                self._load_slow(f"slow-{block}", [block])

    def _load_slow(self, suffix: str, blocks: list[int]) -> None:
        """Load or build the slow functions of some basic blocks, the first time with those that
        diverged warps need besides."""
        first = suffix == "slow"
        name = _file_name(self.name, suffix, self.level)
        image = disk_cache.load(name)
        if image is None:
            image = build(self._traced().slow(blocks, first), self.level)
            disk_cache.save(name, image)
        library = self._add(suffix, Library(image, ["slow", "ready"] if first else ["slow"]))
        self._blocks[suffix] = blocks
        if blocks:
            self.slow[blocks] = _pointers(library["slow"], len(blocks))
        if first:
            self.ready[:] = _pointers(library["ready"], len(self.program.blocks))

    def _add(self, suffix: str, library: Library) -> Library:
        if suffix in self._libraries:
            self._replaced.append(self._libraries[suffix])
        self._libraries[suffix] = library
        return library


def _file_name(name: str, suffix: str, level: int) -> str:
    return f"{name}.{suffix}{'-optimized' if level == OPTIMIZED else ''}"


def is_saved(name: str, level: int) -> bool:
    """Whether the fast functions are in the disk cache."""
    return (disk_cache.folder() / _file_name(name, "fast", level)).is_file()


def blocks_wait(program: Program) -> bool:
    """Return whether a program's blocks can wait for each other: through atomic operations or
    volatile, relaxed or acquire loads outside shared memory. Calls that use the heap or print do
    not wait, but what they do depends on the order of blocks."""
    for i in program.function.instructions:
        own = any(word.split("::")[0] in ("shared", "local", "param") for word in i.modifiers)
        if i.name.startswith("cp.reduce") or (not own and (i.root in ATOMICS or is_poll(i))):
            return True
    return False


def code_name(program: Program, rows: bool) -> str:
    if (found := program.native.get(("name", rows))) is not None:
        return str(found)
    parts = program.module.digest, program.function.name, str(rows), str(sorted(program.left_out))
    name = disk_cache.name_of(["native", *_build_inputs(), *parts])
    program.native["name", rows] = name
    return name


def code_of(program: Program, rows: bool) -> Code:
    """Return the code of a program, compiled at most once. Raises NotCovered."""
    found = program.native.get(rows)
    if found is None:
        try:
            found = Code(program, rows)
        except NotCovered as reason:
            found = reason
        program.native[rows] = found
    if isinstance(found, NotCovered):
        raise found
    return found


def is_compiled(program: Program, rows: bool) -> bool:
    """Return whether the code is in memory or in the disk cache."""
    if isinstance(program.native.get(rows), Code):
        return True
    name = code_name(program, rows)
    return is_saved(name, QUICK) or is_saved(name, OPTIMIZED)
