"""LLVM, through llvmlite: IR text to object code, object code to addresses."""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform
from collections.abc import Iterable
from functools import cache
from typing import Any

from gemmlab.errors import InternalError, MissingDependencyError, TierError
from gemmlab.packages import LLVMLITE

EFFORT = 1  # of LLVM on a program, 0 to 3: at 2 it takes longer, and nothing runs faster
# Vectors of 32 lanes are split into the widest registers that there are.
ATTRIBUTES = '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
# What LLVM may call of its own accord, by name: no search of the process, which can abort it.
LIBC: dict[str, Any] = {
    "memset": ctypes.memset,
    "memcpy": ctypes.memmove,
    "memmove": ctypes.memmove,
}


@cache
def missing() -> str | None:
    """Why native code cannot run here; None where it can."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"a processor of type {platform.machine()} has not been tried"
    try:
        _, features = host()
    except MissingDependencyError as error:
        return str(error)
    lacking = {x for x in ("avx2", "fma") if f"+{x}" not in features.split(",")}
    return f"the processor has no {' and no '.join(sorted(lacking))}" if lacking else None


@cache
def host() -> tuple[str, str]:
    """The processor's name and features, as LLVM calls them. Raises MissingDependencyError."""
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


def build(text: str, thoroughly: bool = False) -> bytes:
    """Object code of IR text. What runs in every kernel is worth more passes. Raises InternalError
    where LLVM does not take the text."""
    import llvmlite.binding as llvm

    host()
    try:
        module = llvm.parse_assembly(f"{text}\nattributes #0 = {{ nounwind {ATTRIBUTES} }}\n")
        module.verify()
    except RuntimeError as error:
        raise InternalError(
            "LLVM refuses what the emulator's native tier wrote, which is a bug in gemmlab; "
            f"tier='numpy' does without it: {error}"
        ) from error
    machine = _machine(2 if thoroughly else EFFORT)
    level = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, level)
    if thoroughly:
        passes = builder.getModulePassManager()
    else:  # straight-line code as it is written here leaves little to do
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_sinking_pass()
    passes.run(module, builder)
    return bytes(machine.emit_object(module))


class Library:
    """Object code in memory, which is freed when the library dies.

    Raises TierError where LLVM cannot load it: there is no memory left, or something that it
    calls is missing.
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
    """A linker for one library: one that several share keeps each one's symbols for ever.

    JITLink maps an object as one piece. LLVM's other linker maps each section where there is room,
    and aborts the process when two of them lie so far apart that 32-bit relocations do not reach.
    """
    import llvmlite.binding as llvm

    host()
    try:
        return llvm.create_lljit_compiler(_machine(1), use_jit_link=True)
    except RuntimeError:  # LLVM has no JITLink on Windows
        return llvm.create_lljit_compiler(_machine(1))
