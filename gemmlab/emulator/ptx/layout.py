"""Where variables lie: their offsets in the parameter space, in shared and in local memory."""

from __future__ import annotations

from gemmlab.emulator.ptx.ir import Function, Module, Variable


def _layout(variables: list[Variable]) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for v in variables:
        end = -(-end // v.alignment) * v.alignment
        offsets[v.name] = end
        end += v.size
    return offsets, end


def parameter_offsets(function: Function) -> dict[str, int]:
    return _layout(function.parameters)[0]


def shared_variables(module: Module, function: Function) -> list[Variable]:
    found = [v for v in (*module.variables, *function.variables) if v.space == "shared"]
    # Extern arrays share the dynamic part, behind all that has a size.
    return sorted(found, key=lambda v: v.size == 0)


def shared_offsets(module: Module, function: Function) -> dict[str, int]:
    variables = shared_variables(module, function)
    offsets, _ = _layout([v for v in variables if v.size])
    dynamic = dynamic_shared_offset(module, function)
    return offsets | {v.name: dynamic for v in variables if not v.size}


def static_shared_bytes(module: Module, function: Function) -> int:
    variables = [v for v in shared_variables(module, function) if v.size]
    return _layout(variables)[1]


def dynamic_shared_offset(module: Module, function: Function) -> int:
    extern = [v.alignment for v in shared_variables(module, function) if not v.size]
    alignment = max([16, *extern])
    return -(-static_shared_bytes(module, function) // alignment) * alignment


def local_layout(function: Function) -> tuple[dict[str, int], int]:
    """Offsets and total size of a thread's own variables; .param ones pass arguments of calls."""
    return _layout([v for v in function.variables if v.space in ("local", "param")])
