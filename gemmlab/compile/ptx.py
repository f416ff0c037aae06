"""PTX text to Artifact; the parser is the emulator's."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from gemmlab.compile.artifact import Artifact, ParameterType, VariableType
from gemmlab.errors import CompileError, UnknownNameError
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Variable
from gemmlab.ptx.parser import parse

__all__ = ["assemble", "describe", "parse"]

_KINDS = {"b": "uint", "u": "uint", "s": "int", "f": "float"}  # NumPy's
_ASSEMBLER = Path(__file__).with_name("assembler.py")


def describe(text: str, entry: str | None = None, origin: str = "PTX text") -> Artifact:
    """The Artifact of one entry of PTX text, not assembled. Raises PtxSyntaxError.

    `entry` may be left out where there is only one.
    """
    module = parse(text)
    function = module.entry(choose(module.entries, entry, origin))
    return Artifact(
        entry=function.name,
        ptx=text,
        arch=module.target,
        parameters=tuple(_parameter(variable) for variable in function.parameters),
        block=function.reqntid,
        origin=origin,
        variable_types=tuple(_variable(v) for v in module.variables if _is_declared(v)),
    )


def choose(entries: list[str], entry: str | None, origin: str, demangle: bool = False) -> str:
    """The entry that is meant. Raises UnknownNameError listing those that there are.

    With `demangle` a C++ kernel in no namespace is also known by its name in the source.
    """
    names = ", ".join(entries)
    if not entries:
        raise UnknownNameError(f"{origin} has no kernel entry")
    if entry is None:
        if len(entries) > 1:
            raise UnknownNameError(f"{origin} has {len(entries)} entries, choose one of: {names}")
        return entries[0]
    if entry in entries:
        return entry
    mangled = f"_Z{len(entry)}{entry}"
    found = [name for name in entries if demangle and name.startswith(mangled)]
    if len(found) != 1:
        problem = "more than one entry" if found else "no entry"
        raise UnknownNameError(f"{origin} has {problem} {entry!r}; it has {names}")
    return found[0]


def assembler_version() -> str | None:
    """The version of nvJitLink; None where it is not installed."""
    try:
        from cuda.bindings import nvjitlink

        return ".".join(str(number) for number in nvjitlink.version())
    except (ImportError, RuntimeError):
        return None


def assembler_options(arch: str) -> list[str]:
    return [f"-arch={arch}", "-lineinfo"]


def assemble(artifact: Artifact, arch: str) -> bytes:
    """A cubin of the artifact's PTX, by nvJitLink. Raises CompileError where it refuses the PTX, or
    crashes, as damaged PTX can make it do."""
    return _assemble(artifact.ptx, artifact.origin, arch)


@lru_cache(maxsize=1)  # the entries of one file, loaded one after another, share its cubin
def _assemble(text: str, origin: str, arch: str) -> bytes:
    command = [sys.executable, "-P", str(_ASSEMBLER), origin, *assembler_options(arch)]
    done = subprocess.run(command, input=text.encode(), capture_output=True)
    if done.returncode == 0:
        return done.stdout
    log = done.stderr.decode(errors="replace")
    if done.returncode < 0:  # minus the signal that ended it
        log = f"the assembler crashed: {signal.strsignal(-done.returncode)}"
    raise CompileError(f"{origin} cannot be assembled for {arch}", log)


def misplaces_dynamic_shared(artifact: Artifact, static_bytes: int) -> bool:
    """Whether a cubin with so many bytes of static shared memory ignores the alignment that the PTX
    declares for the dynamic part behind them. Those of nvJitLink 13.0 align it to 16 bytes."""
    module = parse(artifact.ptx)
    alignment = layout.dynamic_shared_alignment(module, module.entry(artifact.entry))
    return static_bytes % alignment != 0 and alignment > 16


def _parameter(variable: Variable) -> ParameterType:
    may_point = variable.is_pointer or variable.type in ("u64", "s64", "b64")
    # After .ptr, .align is that of the memory pointed to, not of the parameter.
    alignment = variable.size if variable.is_pointer else variable.alignment
    return ParameterType(variable.type, variable.size, alignment, may_point)


def _is_declared(variable: Variable) -> bool:
    """By somebody, with a value that holds for every launch: texts of printf and tables of virtual
    functions are the compiler's, addresses differ."""
    own = variable.name.startswith(("$", "_ZT", "__unnamed", "__nv_"))
    return variable.space in ("global", "const") and not own and not variable.pointers


def _variable(variable: Variable) -> VariableType:
    """As PTX has it: an array of anything but numbers is bytes."""
    kind, width = variable.type[0], int(variable.type[1:]) // 8
    dtype = f"{_KINDS[kind]}{8 * width}"
    count = variable.size // width
    return VariableType(variable.name, variable.name, dtype, (count,) if count > 1 else ())
