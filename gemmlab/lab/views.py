"""Views of a kernel that need no run: source, machine code and what it costs, resources."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from gemmlab import problems
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.directive import Directive
from gemmlab.compile.source import summary
from gemmlab.core.figures import times
from gemmlab.cubin import code, lint, loops, tools
from gemmlab.errors import CompileError, InputError
from gemmlab.hardware.occupancy import occupancy
from gemmlab.hardware.specs import GPUS, architecture
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Rung
from gemmlab.lab.explain import readings
from gemmlab.lab.explain.counted import launch
from gemmlab.lab.explain.stalls import Stalls, measured, predicted

_LANES = 128  # per multiprocessor: the rule of `sass.lint` is for one FFMA per cycle and partition


def source(rung: Rung) -> str:
    """Return the text of the rung's files, its own file first."""
    files = [module.__file__ for module in rung.modules]
    return "\n\n".join(Path(file).read_text(encoding="utf-8") for file in files if file)


def kernel(text: str, directive: Directive, artifact: Artifact) -> dict[str, str]:
    """Return what a file says of its kernel and the kernel's signature, as named texts."""
    facts = {
        "about": summary(text),
        "kernel": artifact.signature,
        "launch": str(directive) or "no directive: add grid=… block=… args=…",
    }
    taken = artifact.resources
    if taken:
        facts["resources"] = (
            f"{taken.registers} registers, {taken.spill_bytes} bytes spilled, "
            f"{taken.static_smem_bytes} bytes of static shared memory, {artifact.arch}"
        )
    return {name: fact for name, fact in facts.items() if fact}


def sass(artifact: Artifact) -> str:
    """Return the disassembled machine code. Raises CompileError if there is none."""
    return tools.sass(_cubin(artifact), artifact.entry)


def stalls(artifact: Artifact, rung: Rung | None) -> Stalls:
    """Return at which instructions warps are: a reading, or a prediction for the rung's launch.

    Raises CompileError if there is no machine code, and InputError if there is neither.
    """
    _cubin(artifact)
    if found := measured(artifact):
        return found
    if rung is not None and rung.launches is None:
        problem = problems.find(rung.problem)
        shape = dict.fromkeys(problem.axes, problem.emulated_size)
        call = launch(problem, rung, artifact, shape).call
        if call and (found := predicted(artifact, call)):
            return found
    raise InputError(
        "this code has neither a reading nor a prediction; `gemmlab emulate --predict` may say why"
    )


def machine_lint(artifact: Artifact, rung: Rung | None = None) -> dict[str, str]:
    """Return what the kernel's inner loop costs to issue, as named texts.

    With `rung`, whose kernel it is, also the measured rate of the largest product that was read on
    hardware. Raises CompileError if there is no machine code, and InputError for an architecture to
    which the rule does not apply.
    """
    arch = architecture(artifact.arch)
    if arch.fp32_lanes != _LANES:
        raise InputError(
            f"--lint needs an architecture with {_LANES} FP32 lanes per multiprocessor; "
            f"{artifact.arch} has {arch.fp32_lanes}"
        )
    text = tools.sass(_cubin(artifact), artifact.entry, words=True)
    found = lint.lint(loops.hot_loop(code.read(text)))
    gpu = next((gpu for gpu in GPUS if gpu.arch == arch.name), None)

    def rate(share: float) -> str:
        return f"{share:.1%} of the FP32 peak" + (
            f", {share * gpu.fp32_tflops:.1f} TFLOPS on {gpu.name}" if gpu else ""
        )

    ahead = found.distances
    facts = {
        "inner loop": f"{found.instructions} instructions, {found.ffmas} of them FFMA",
        "others": ", ".join(f"{count} {opcode}" for opcode, count in found.others) or "none",
    }
    if found.ffmas:
        facts |= {
            "issue bound": rate(found.issue_bound),
            "register reads": f"{found.fresh} FFMAs find no operand in the reuse cache; "
            f"{found.missed} read a register again that the FFMA before read",
            "results": f"{found.alike} FFMAs write to the bank of the FFMA before",
            "register bound": f"{found.cycles} cycles: {rate(found.register_bound)}",
        }
    own = rung and (rung.problem, label(rung), rung.layout)
    if own and gpu and (read := readings.largest(*own, gpu.name)):
        facts["measured"] = (
            f"{read.share:.1%} of the {read.peak.name}, {read.tflops:.1f} TFLOPS on "
            f"{read.device} at {times(read.shape)}"
        )
    return facts | {
        "one warp alone": f"{found.alone} cycles, with {found.stalled} from stall counts; "
        f"{found.waits} instructions wait for data, {found.yields} yield",
        "shared loads": f"{len(ahead)}, used after {min(ahead)} cycles or more, "
        f"{median(ahead):.0f} in the middle"
        if ahead
        else "none",
    }


def resources(artifact: Artifact) -> dict[str, str]:
    """Return the resources of one block and the occupancy, as named texts."""
    taken = artifact.resources
    if taken is None or artifact.block is None:
        raise CompileError(f"{artifact.entry} was not assembled for {artifact.arch}")
    x, y, z = artifact.block
    smem = taken.static_smem_bytes + artifact.dynamic_smem_bytes
    found = occupancy(artifact.arch, x * y * z, taken.registers, smem)
    blocks = f"{found.blocks_per_sm} block{'' if found.blocks_per_sm == 1 else 's'}"
    return {
        "entry": artifact.entry,
        "architecture": artifact.arch,
        "block": f"{x}×{y}×{z} = {x * y * z} threads",
        "registers": f"{taken.registers} per thread",
        "spills": f"{taken.spill_bytes} bytes per thread",
        "shared memory": f"{taken.static_smem_bytes} bytes static, "
        f"{artifact.dynamic_smem_bytes} dynamic per block",
        "occupancy": f"{found.fraction:.0%}: {blocks}, {found.warps_per_sm} "
        f"warps per multiprocessor, limited by {found.limiter}",
    }


def _cubin(artifact: Artifact) -> bytes:
    if artifact.cubin is None:
        raise CompileError(f"{artifact.entry} has no machine code for {artifact.arch}")
    return artifact.cubin
