"""PTX modules around a few instructions."""

from __future__ import annotations

from collections.abc import Sequence

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %q<32>; "
    ".reg .f32 %f<8>; .reg .f64 %g<8>;"
)
# PTX type -> type of its register, type of its load and store, NumPy type
STORAGE = {
    "u8": ("b16", "u8", "u1"),
    "s8": ("b16", "s8", "i1"),
    "f16": ("b16", "b16", "u2"),
    "pred": ("pred", "", "u4"),
} | {
    f"{k}{b}": (f"{k}{b}", f"{k}{b}", f"{n}{b // 8}")
    for k, n in (("u", "u"), ("s", "i"), ("b", "u"))
    for b in (16, 32, 64)
}
STORAGE |= {f"f{b}": (f"f{b}", f"f{b}", f"f{b // 8}") for b in (32, 64)}


def ptx(body: str, parameters: Sequence[str] = (), module: str = "") -> str:
    """Return a module with one entry `k`. Parameters are .u64 p0, p1, … unless types are given."""
    declared = ", ".join(f".param .{type_} p{i}" for i, type_ in enumerate(parameters))
    return f"{HEADER}{module}\n.visible .entry k({declared})\n{{\n{REGISTERS}\n{body}\n}}\n"
