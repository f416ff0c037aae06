"""Views of one rung that need no run: source, PTX, machine code, resources."""

from __future__ import annotations

from pathlib import Path

from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.cute import compile_rung
from gemmlab.compile.resources import sass as disassemble
from gemmlab.errors import CompileError
from gemmlab.hardware.occupancy import occupancy
from gemmlab.kernels.rung import Rung


def source(rung: Rung) -> str:
    """Return the text of the rung's files, its own file first."""
    files = [module.__file__ for module in rung.modules]
    return "\n\n".join(Path(file).read_text(encoding="utf-8") for file in files if file)


def ptx(rung: Rung, arch: str | None = None) -> str:
    """Return the PTX for `arch` (default: sm_90a).

    Raises CompileError if it does not compile, UnknownNameError for an unknown architecture.
    """
    return compile_rung(rung, arch or DEFAULT).ptx


def sass(rung: Rung, arch: str | None = None) -> str:
    """Return the disassembled machine code. Raises the same errors as `ptx`."""
    artifact = compile_rung(rung, arch or DEFAULT)
    if artifact.cubin is None:
        raise CompileError(f"{artifact.entry} has no machine code for {artifact.arch}")
    return disassemble(artifact.cubin, artifact.entry)


def resources(rung: Rung, arch: str | None = None) -> dict[str, str]:
    """Return the resources of one block and the occupancy, as named texts."""
    artifact = compile_rung(rung, arch or DEFAULT)
    taken = artifact.resources
    if taken is None or artifact.block is None:
        raise CompileError(f"{artifact.entry} was not assembled for {artifact.arch}")
    x, y, z = artifact.block
    smem = taken.static_smem_bytes + artifact.dynamic_smem_bytes
    found = occupancy(artifact.arch, x * y * z, taken.registers, smem)
    return {
        "entry": artifact.entry,
        "architecture": artifact.arch,
        "block": f"{x}×{y}×{z} = {x * y * z} threads",
        "registers": f"{taken.registers} per thread",
        "spills": f"{taken.spill_bytes} bytes per thread",
        "shared memory": f"{taken.static_smem_bytes} bytes static, "
        f"{artifact.dynamic_smem_bytes} dynamic per block",
        "occupancy": f"{found.fraction:.0%}: {found.blocks_per_sm} blocks, {found.warps_per_sm} "
        f"warps per multiprocessor, limited by {found.limiter}",
    }
