"""Make an Artifact from PTX text, with the emulator's parser."""

from __future__ import annotations

import base64
from functools import lru_cache

from gemmlab.compile import compiler_process
from gemmlab.compile.artifact import Artifact, ParameterType, VariableType
from gemmlab.errors import CompileError, UnknownNameError
from gemmlab.ptx import layout
from gemmlab.ptx.ir import Variable
from gemmlab.ptx.parser import parse

__all__ = ["assemble", "describe", "parse"]

_KINDS = {"b": "uint", "u": "uint", "s": "int", "f": "float"}  # PTX kind -> NumPy kind


def describe(text: str, entry: str | None = None, origin: str = "PTX text") -> Artifact:
    """Return the Artifact of one entry of PTX text, not assembled.

    `entry` may be omitted if there is only one. Raises PtxSyntaxError and UnknownNameError.
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
    """Return the entry called `entry`, or the only one. Raises UnknownNameError with a list.

    With `demangle`, `entry` may be the source name of a C++ kernel outside namespaces.
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
    """Return the version of nvJitLink; None if it is not installed."""
    try:
        from cuda.bindings import nvjitlink

        return ".".join(str(number) for number in nvjitlink.version())
    except (ImportError, RuntimeError):
        return None


def assembler_options(arch: str) -> list[str]:
    return [f"-arch={arch}", "-lineinfo"]


def assemble(artifact: Artifact, arch: str) -> bytes:
    """Assemble the artifact's PTX to a cubin with nvJitLink.

    Raises CompileError if nvJitLink rejects the PTX or crashes, as it can on invalid PTX.
    """
    return _assemble(artifact.ptx, artifact.origin, arch)


@lru_cache(maxsize=1)  # entries of one file are often loaded in succession and share its cubin
def _assemble(text: str, origin: str, arch: str) -> bytes:
    if not text.endswith("\n"):  # nvJitLink 13 crashes on some texts of a length divisible by 8
        text += "\n"
    answer = compiler_process.ask(ptx=text, name=origin, options=assembler_options(arch))
    if "error" in answer:
        raise CompileError(f"{origin} cannot be assembled for {arch}", answer["error"])
    return base64.b64decode(answer["cubin"])


def misplaces_dynamic_shared(artifact: Artifact, static_bytes: int) -> bool:
    """Whether a cubin ignores the alignment that the PTX declares for dynamic shared memory.

    `static_bytes` is the cubin's static shared memory, which precedes the dynamic part. Cubins of
    nvJitLink 13.0 align the dynamic part to 16 bytes only.
    """
    module = parse(artifact.ptx)
    alignment = layout.dynamic_shared_alignment(module, module.entry(artifact.entry))
    return static_bytes % alignment != 0 and alignment > 16


def _parameter(variable: Variable) -> ParameterType:
    may_point = variable.is_pointer or variable.type in ("u64", "s64", "b64")
    # After .ptr, .align is the alignment of the pointee, not of the parameter.
    alignment = variable.size if variable.is_pointer else variable.alignment
    return ParameterType(variable.type, variable.size, alignment, may_point)


def _is_declared(variable: Variable) -> bool:
    """Whether the user declared the variable, with a value that is the same for every launch.

    The compiler generates others, such as printf's strings and tables of virtual functions; the
    values of variables that hold addresses differ between launches.
    """
    own = variable.name.startswith(("$", "_ZT", "__unnamed", "__nv_"))
    return variable.space in ("global", "const") and not own and not variable.pointers


def _variable(variable: Variable) -> VariableType:
    """Return the type as declared in PTX, where arrays of non-numbers are arrays of bytes."""
    kind, width = variable.type[0], int(variable.type[1:]) // 8
    dtype = f"{_KINDS[kind]}{8 * width}"
    count = variable.size // width
    return VariableType(variable.name, variable.name, dtype, (count,) if count > 1 else ())
