"""LLVM through llvmlite: IR text to object code, object code to addresses."""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
from collections.abc import Iterable
from functools import cache
from typing import Any

from gemmlab.core.packages import LLVMLITE
from gemmlab.errors import InternalError, MissingDependencyError, TierError

# LLVM's optimization levels for kernels. Code of the first takes a third to a half more time to run
# and less than half the time to compile. Level 2 takes longer to compile and yields no faster code.
QUICK, OPTIMIZED = 0, 1
# LLVM splits vectors of 32 lanes into the widest registers available.
ATTRIBUTES = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
# Functions that LLVM may call implicitly. Resolving them by name here avoids a symbol search in the
# process, which can abort it.
LIBC: dict[str, Any] = {
    "memset": ctypes.memset,
    "memcpy": ctypes.memmove,
    "memmove": ctypes.memmove,
}


@cache
def missing() -> str | None:
    """Return why native code cannot run here, or None if it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"processors of type {platform.machine()} are not supported"
    try:
        _, features = host()
    except MissingDependencyError as error:
        return str(error)
    lacking = {x for x in ("avx2", "fma") if f"+{x}" not in features.split(",")}
    return f"the processor lacks {' and '.join(sorted(lacking))}" if lacking else None


@cache
def host() -> tuple[str, str]:
    """Return the processor's name and features as LLVM spells them. Raises
    MissingDependencyError."""
    llvm: Any = LLVMLITE.load()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def version() -> str:
    return importlib.metadata.version("llvmlite")


@cache
def _machine(effort: int) -> Any:
    import llvmlite.binding as llvm

    name, features = host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=effort, reloc="pic", codemodel="small"
    )


def build(text: str, level: int = QUICK, thoroughly: bool = False) -> bytes:
    """Compile IR text to object code. `level`: QUICK or OPTIMIZED. `thoroughly`: run more passes,
    for code that all kernels share. Raises InternalError if LLVM rejects the text."""
    import llvmlite.binding as llvm

    host()
    try:
        module = llvm.parse_assembly(f"{text}\nattributes #0 = {{ nounwind {ATTRIBUTES} }}\n")
        module.verify()
    except RuntimeError as error:
        raise InternalError(
            "LLVM rejects the IR of the emulator's native tier, which is a bug in gemmlab; run "
            f"with tier='numpy' instead: {error}"
        ) from error
    machine = _machine(2 if thoroughly else level)
    tuning = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, tuning)
    if thoroughly:
        passes = builder.getModulePassManager()
    else:  # the emitted straight-line code leaves little to optimize
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_sinking_pass()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))


class Library:
    """Object code loaded into memory; the memory is freed with this object.

    Raises TierError if LLVM cannot load the code: memory is exhausted or a symbol is missing.
    """

    def __init__(self, image: bytes, symbols: Iterable[str]) -> None:
        import llvmlite.binding as llvm

        builder = llvm.JITLibraryBuilder().add_object_img(image)
        for name, function in LIBC.items():
            builder.import_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
        for symbol in symbols:
            builder.export_symbol(symbol)
        try:
            self._tracker = builder.link(_linker(), "gemmlab")
        except RuntimeError as error:
            raise TierError(f"LLVM cannot load the native tier's code: {error}") from error

    def __getitem__(self, symbol: str) -> int:
        return int(self._tracker[symbol])


def _linker() -> Any:
    """Make a linker for one library. A shared linker would keep the symbols of every library for
    good.

    JITLink maps an object as one piece. LLVM's other linker places each section independently and
    aborts the process if two sections are too far apart for 32-bit relocations.
    """
    import llvmlite.binding as llvm

    host()
    try:
        return llvm.create_lljit_compiler(_machine(1), use_jit_link=True)
    except RuntimeError:  # JITLink is not available on Windows
        return llvm.create_lljit_compiler(_machine(1))
