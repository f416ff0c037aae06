"""The emulator as a device: memory is NumPy arrays, a launch returns counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gemmlab import sass
from gemmlab.compile.architectures import DEFAULT
from gemmlab.compile.artifact import Artifact
from gemmlab.core.tensor_map import TensorMap
from gemmlab.devices import arguments
from gemmlab.devices.device import Argument, Dim3, Launched, Span, check_compiled_block
from gemmlab.errors import CheckError, DTypeError, InputError, LaunchError
from gemmlab.hardware.limits import check_launch
from gemmlab.hardware.specs import architecture

if TYPE_CHECKING:
    from gemmlab.devices.flow_emulated import EmulatedRuntime
    from gemmlab.emulator import Run, Trace


class HostBuffer:
    """Device memory held in a NumPy array."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.data = np.zeros(nbytes, np.uint8)

    def write(self, data: np.ndarray, offset: int = 0) -> None:
        raw = np.ascontiguousarray(data).view(np.uint8).ravel()
        self.data[offset : offset + raw.size] = raw

    def read(self) -> np.ndarray:
        return self.data.copy()


class EmulatedDevice:
    """Runs the artifact's PTX on the CPU. A kernel may touch the spans it was given, no more.

    `check` is what `emulate` takes; a finding is raised as CheckError. With `machine_code` the
    counters have those of `gemmlab.sass`, too, where it can count.
    """

    name = "emulated"

    def __init__(
        self,
        arch: str = DEFAULT,
        tier: str = "auto",
        check: str | Iterable[str] | None = None,
        *,
        machine_code: bool = False,
    ) -> None:
        from gemmlab.emulator import tiers

        architecture(arch)
        tiers.check(tier)
        self.arch, self.tier, self.check = arch, tier, check
        self.machine_code = machine_code

    def allocate(self, nbytes: int) -> HostBuffer:
        return HostBuffer(nbytes)

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched:
        """Run to the end. Raises LaunchError past a limit, EmulationError for a kernel's fault."""
        on_host = [_on_host(arg) for arg in args]
        run = _emulate(artifact, grid, block, on_host, dynamic_smem, cluster, self.tier, self.check)
        if run.findings:
            raise CheckError(run.findings[0].kind, str(run.findings[0]))
        machine = sass.counters(artifact, run) if self.machine_code else {}
        return Launched(counters=run.counters | machine)

    @contextmanager
    def runtime(self, artifact: Artifact) -> Iterator[EmulatedRuntime]:
        from gemmlab.devices.flow_emulated import EmulatedRuntime

        yield EmulatedRuntime(self, artifact)

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}


def emulate(
    artifact: Artifact,
    *,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: Sequence[Any],
    dynamic_smem: int = 0,
    order: str | int = "in-order",
    cluster: int | tuple[int, ...] | None = None,
    trace: Trace | None = None,
    tier: str = "auto",
    tensor: str = "exact",
    check: str | Iterable[str] | None = None,
    uninitialized: Sequence[np.ndarray] = (),
    outputs: Sequence[np.ndarray] = (),
    max_instructions: int | None = None,
) -> Run:
    """Run a kernel on the emulator, in this process.

    grid, block: one to three counts, in x, y, z. args: one per kernel parameter. A NumPy array is
    a device buffer, updated in place once the whole launch has succeeded; a `TensorMap` describes
    one, by value, or for a pointer parameter in global memory (there a list of maps, too); ints and
    floats take the parameter's declared type; NumPy scalars must match its size; a struct is bytes
    or a tuple of its fields (arrays, tensor maps and NumPy scalars). dynamic_smem: bytes.
    cluster: blocks per cluster in x, y, z; by default what the kernel was compiled for. order:
    which warps and blocks go first, "in-order", "reversed", or a number that seeds a random order:
    a kernel whose results change with it has a race. trace: a `Trace` to fill, for more than
    totals. check: "all", a name of `gemmlab.emulator.CHECKS`, or several: then `findings` of the
    result tell what the kernel does wrong, in lines of PTX and source, and a fault of the kernel is
    the last of them instead of an exception. uninitialized: those of the arrays that count as never
    written. outputs: arrays that the kernel should write completely, whatever they hold; the check
    `outputs` reports the elements it leaves, unless the kernel reads the array or data decides
    which elements it writes. max_instructions: of a warp, after which BudgetError says that it may
    never end. tier: "numpy", "native" (compiled by LLVM), or "auto", which compiles long launches;
    a trace, a check, a cluster and another order need the first. tensor: "exact" gives products of
    tensor cores the hardware's rounding, bit for bit; "fast" sums them in float32. The module's
    variables are those of `artifact.variables`, which have what the kernel left there when the
    launch has succeeded.
    Returns a `Run` whose `counters` carry Nsight Compute's names.

    Raises DTypeError for what is no Artifact and for an array of another type than the kernel's
    source has, where that is known, InputError for no such order or mode, LaunchError
    past a limit of `artifact.arch` or for arguments that do not fit, EmulationError
    (OutOfBoundsError, DeadlockError, …) for a kernel's fault, TierError where tier "native" cannot
    run, or does not cover the kernel.
    """
    if not isinstance(artifact, Artifact):
        what = type(artifact).__name__
        raise DTypeError(f"emulate takes an Artifact, as gemmlab.load makes it, not {what}")
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise LaunchError(f"args must be a list, one item per parameter, not {args!r}")
    arguments.check_dtypes(artifact, args)
    return _emulate(
        artifact,
        grid,
        block,
        args,
        dynamic_smem,
        cluster,
        tier,
        check,
        order=order,
        trace=trace,
        tensor=tensor,
        uninitialized=uninitialized,
        outputs=outputs,
        max_instructions=max_instructions,
    )


def _emulate(
    artifact: Artifact,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: Sequence[Any],
    dynamic_smem: int,
    cluster: int | tuple[int, ...] | None,
    tier: str,
    check: str | Iterable[str] | None,
    *,
    max_instructions: int | None = None,
    **how: Any,
) -> Run:
    """As `emulate`, of arrays that may be bytes of anything."""
    from gemmlab import emulator

    if not isinstance(dynamic_smem, (int, np.integer)):
        raise LaunchError(f"dynamic_smem must be a whole number of bytes, not {dynamic_smem!r}")
    grid3, block3 = _three("grid", grid), _three("block", block)
    if artifact.resources is not None:
        static_smem, registers = artifact.resources.static_smem_bytes, artifact.resources.registers
    else:
        static_smem, registers = emulator.static_smem_bytes(artifact.ptx, artifact.entry), 0
    check_launch(artifact.arch, grid3, block3, static_smem, dynamic_smem, registers)
    check_compiled_block(artifact, block3)
    clusters = None if cluster is None else _three("cluster", cluster)
    most = emulator.MOST_INSTRUCTIONS if max_instructions is None else max_instructions
    if not isinstance(most, (int, np.integer)) or most < 1:
        raise InputError(f"max_instructions={most!r} is not a positive whole number")
    return emulator.run(
        artifact.ptx,
        artifact.entry,
        grid3,
        block3,
        args,
        dynamic_smem,
        cluster=clusters,
        tier=tier,
        check=check,
        max_instructions=int(most),
        variables=artifact.variables.images,
        **how,
    )


def _three(what: str, counts: int | tuple[int, ...]) -> Dim3:
    dims = tuple(counts) if isinstance(counts, Sequence) else (counts,)
    if not 1 <= len(dims) <= 3 or not all(isinstance(x, (int, np.integer)) for x in dims):
        raise LaunchError(f"{what} {counts!r} must be one to three whole numbers")
    x, y, z = (*(int(d) for d in dims), 1, 1)[:3]
    return x, y, z


def _on_host(arg: Argument) -> Any:
    """What the emulator takes for an argument of a device."""
    if isinstance(arg, list):
        return [_on_host(item) for item in arg]
    if isinstance(arg, TensorMap) and isinstance(arg.array, Span):
        raw = view(arg.array)
        steps = zip(arg.shape, arg.strides, strict=True)
        needed = arg.itemsize + sum((n - 1) * step for n, step in steps)
        if needed > raw.size:
            rule = f"shape {arg.shape} and strides {arg.strides} bytes take {needed} bytes"
            raise LaunchError(f"a tensor map of {raw.size} bytes of memory: {rule}")
        whole = raw[: raw.size // arg.itemsize * arg.itemsize].view(arg.dtype)
        return replace(arg, array=as_strided(whole, arg.shape, arg.strides))
    return view(arg) if isinstance(arg, Span) else arg


def view(span: Span) -> np.ndarray:
    """The bytes of a span, in place."""
    if not isinstance(span.buffer, HostBuffer):
        raise TypeError(f"{type(span.buffer).__name__} is not memory of the emulated device")
    return span.buffer.data[span.offset : span.offset + span.nbytes]
