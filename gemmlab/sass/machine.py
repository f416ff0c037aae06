"""What a launch executes of a kernel's machine code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gemmlab.compile.artifact import Artifact
from gemmlab.cubin import tools
from gemmlab.cubin.code import Code, read
from gemmlab.emulator import Run
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.sass.counts import Counted, count, threads_on
from gemmlab.sass.differences import Difference, differences
from gemmlab.sass.lines import Executed, Lines, ptx_lines

# Nsight Compute's names of memory instructions.
ACCESSES = {
    **{"LDG": "global_ld", "STG": "global_st", "ATOMG": "global_atom", "REDG": "global_red"},
    **{"LDS": "shared_ld", "STS": "shared_st", "ATOMS": "shared_atom", "STSM": "shared_stsm"},
    **{"LDL": "local_ld", "STL": "local_st", "LDGSTS": "ldgsts", "LDSM": "ldsm"},
}
GENERIC = frozenset({"LD", "ST", "ATOM", "RED"})  # the address selects the memory


@dataclass(frozen=True)
class MachineCode:
    """A kernel's machine code and what one emulated launch executed of it."""

    code: Code  # the instructions and basic blocks
    counted: Counted  # the executions of each basic block
    lines: Lines  # the emulator's counts by PTX line
    differences: tuple[Difference, ...]  # of memory accesses, to the PTX

    @property
    def counters(self) -> dict[str, int]:
        """Instructions per warp and per thread under Nsight Compute's names.

        If known, also predicated-on thread-instructions, and accesses per warp to each kind of
        memory.
        """
        warps = threads = 0
        on: int | None = 0
        accesses = dict.fromkeys(ACCESSES.values(), 0)
        generic = False
        for block, executed, taken in zip(
            self.code.blocks, self.counted.blocks, self.counted.taken, strict=True
        ):
            body = self.code.inside(block)
            warps += executed.warps * len(body)
            threads += executed.threads * len(body)
            of_block = threads_on(body, executed, taken, self.lines) if executed.threads else 0
            on = None if on is None or of_block is None else on + of_block
            for one in body:
                generic |= one.root in GENERIC
                if one.root in ACCESSES:
                    accesses[ACCESSES[one.root]] += executed.warps
        counters = {"smsp__inst_executed.sum": warps, "smsp__thread_inst_executed.sum": threads}
        if on is not None:
            counters["smsp__thread_inst_executed_pred_on.sum"] = on
        if not generic:
            named = {f"smsp__inst_executed_op_{name}.sum": n for name, n in accesses.items()}
            counters |= named
        return counters


def analyse(artifact: Artifact, run: Run) -> MachineCode:
    """Derive the execution counts of a kernel's machine code from an emulated launch.

    Args:
        artifact: the kernel.
        run: the launch, as `gemmlab.emulate` returns it.

    Raises:
        CompileError: the artifact has no machine code, or the code has no PTX lines.
        MissingDependencyError: nvdisasm is not installed.

    Examples:
        >>> kernel = gemmlab.load("__global__ void twice(float *x) { x[threadIdx.x] *= 2; }")
        >>> run = gemmlab.emulate(kernel, grid=1, block=32, args=[np.ones(32, np.float32)])
        >>> gemmlab.sass.analyse(kernel, run).counters["smsp__inst_executed_op_global_ld.sum"]
        1
    """
    if artifact.cubin is None:
        raise CompileError(f"{artifact.entry} was not assembled, so it has no machine code")
    code = disassemble(artifact.cubin, artifact.entry)
    if all(one.line is None for one in code.instructions):
        raise CompileError(f"the machine code of {artifact.entry} has no PTX line information")
    lines = ptx_lines(run)
    tally = run.tally
    launched = Executed(int(tally.warps[:1].sum()), int(tally.lanes[:1].sum()))
    counted = count(code, lines, launched)
    return MachineCode(code, counted, lines, differences(run, code, counted))


def counters(artifact: Artifact, run: Run) -> dict[str, int]:
    """Return the counters of `analyse`, or an empty dict if it raises."""
    try:
        return analyse(artifact, run).counters
    except (CompileError, MissingDependencyError):
        return {}


@lru_cache(maxsize=64)
def disassemble(cubin: bytes, entry: str) -> Code:
    """Return a kernel's machine code, with PTX lines."""
    return read(tools.sass(cubin, entry, ptx_lines=True))
