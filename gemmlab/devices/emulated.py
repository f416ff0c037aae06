"""The emulator as a device: buffers are NumPy arrays and a launch returns counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

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
    """Runs an artifact's PTX on the CPU. A kernel may access only the spans passed to it.

    `check` is as for `emulate`; a finding is raised as CheckError. With `machine_code`, the
    counters include those of `gemmlab.sass` if it can count the kernel.
    """

    name = "emulated"

    def __init__(
        self,
        arch: str = DEFAULT,
        tier: str = "auto",
        check: str | Iterable[str] | None = None,
        *,
        order: str | int = "in-order",
        machine_code: bool = False,
    ) -> None:
        from gemmlab.emulator import tiers

        architecture(arch)
        tiers.check(tier)
        self.arch, self.tier, self.check = arch, tier, check
        self.order, self.machine_code = order, machine_code

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
        """Run a kernel to completion.

        Raises LaunchError if a limit is exceeded and EmulationError for an error in the kernel.
        """
        host = [on_host(arg) for arg in args]
        how = (self.tier, self.check)
        run = _emulate(artifact, grid, block, host, dynamic_smem, cluster, *how, order=self.order)
        if run.findings:
            raise CheckError(run.findings[0].kind, str(run.findings[0]))
        counters = run.counters
        if self.machine_code:
            from gemmlab import sass

            counters = counters | sass.counters(artifact, run)
        return Launched(counters=counters)

    def traced(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int,
        cluster: Dim3 | None,
        trace: Trace,
    ) -> Run:
        """Run a kernel in the default order, and fill a trace. Findings raise nothing."""
        host = [on_host(arg) for arg in args]
        how = (self.tier, self.check)
        return _emulate(artifact, grid, block, host, dynamic_smem, cluster, *how, trace=trace)

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

    The module's variables start from `artifact.variables`, which is updated if the launch succeeds.

    Args:
        artifact: a kernel, as returned by `gemmlab.load`.
        grid: blocks in x, y, z: one to three counts.
        block: threads per block in x, y, z: one to three counts.
        args: one item per kernel parameter. A NumPy array is a device buffer, updated in place if
            the launch succeeds; like the artifact's `variables`, no other thread may use it
            meanwhile. A `TensorMap` is passed by value, or through global memory for a
            pointer parameter, which also takes a list of maps. ints and floats are converted to
            the parameter's declared type; NumPy scalars must match its size. A struct is bytes or
            a tuple of its fields (arrays, tensor maps and NumPy scalars).
        dynamic_smem: dynamic shared memory per block, in bytes.
        order: the order in which warps and blocks run: "in-order", "reversed", or an integer seed
            for a random order. A kernel whose results depend on it has a race.
        cluster: blocks per cluster in x, y, z; by default as compiled.
        trace: a `gemmlab.emulator.Trace` to fill, for more detail than totals.
        tier: "numpy", "native" (compiled by LLVM), or "auto", which compiles long launches. A
            trace, a check, a cluster, another order or `tensor="fast"` requires "numpy".
        tensor: "exact" rounds tensor core products like the hardware, bit for bit; "fast" sums
            them in float32.
        check: "all", a name in `gemmlab.emulator.CHECKS`, or several names. The result's
            `findings` then report the kernel's errors with lines of PTX and source. An error that
            would raise an exception becomes the last finding instead, except an unsupported
            instruction.
        uninitialized: the arrays in `args` to treat as never written.
        outputs: the arrays that the kernel must overwrite completely. The check `outputs` reports
            elements it leaves unwritten, unless the kernel reads the array, or loaded data or
            integer arguments decide which elements it writes.
        max_instructions: the instruction budget of a warp, 10 million by default. Up to
            that value, the native tier may also stop a launch if no block ends for seconds.

    Returns:
        The counters, under Nsight Compute's names, and the findings.

    Raises:
        DTypeError: `artifact` is not an Artifact, or the dtype of an array differs from the one in
            the kernel's source (if known).
        InputError: an order, mode or budget is not valid, or the kernel wrote to a read-only array.
        LaunchError: a limit of `artifact.arch` is exceeded, or arguments do not fit.
        EmulationError: an error in the kernel: OutOfBoundsError, DeadlockError, BudgetError, ….
        TierError: tier "native" cannot run or does not support the kernel.

    Examples:
        >>> kernel = gemmlab.load("__global__ void twice(float *x) { x[threadIdx.x] *= 2; }")
        >>> x = np.arange(32, dtype=np.float32)
        >>> run = gemmlab.emulate(kernel, grid=1, block=32, args=[x])
        >>> x[:4]
        array([0., 2., 4., 6.], dtype=float32)
        >>> run.counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
        4
    """
    if not isinstance(artifact, Artifact):
        what = type(artifact).__name__
        raise DTypeError(f"emulate takes an Artifact, as returned by gemmlab.load, not {what}")
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise LaunchError(f"args must be a list, one item per parameter, not {args!r}")
    arguments.check_types(artifact, args)
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
    """Like `emulate`, without checking the arrays' dtypes, which may be raw bytes."""
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
    most = emulator.MAX_INSTRUCTIONS if max_instructions is None else max_instructions
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


def on_host(arg: Argument) -> Any:
    """Convert a device argument to an argument of the emulator."""
    if isinstance(arg, list):
        return [on_host(item) for item in arg]
    if isinstance(arg, TensorMap) and isinstance(arg.array, Span):
        raw = view(arg.array)
        steps = zip(arg.shape, arg.strides, strict=True)
        needed = arg.itemsize + sum((n - 1) * step for n, step in steps)
        if needed > raw.size:
            rule = f"shape {arg.shape} and strides {arg.strides} bytes need {needed} bytes"
            raise LaunchError(f"a tensor map of a buffer of {raw.size} bytes: {rule}")
        whole = raw[: raw.size // arg.itemsize * arg.itemsize].view(arg.dtype)
        return replace(arg, array=as_strided(whole, arg.shape, arg.strides))
    return view(arg) if isinstance(arg, Span) else arg


def view(span: Span) -> np.ndarray:
    """Return a view of a span's bytes."""
    if not isinstance(span.buffer, HostBuffer):
        raise TypeError(f"{type(span.buffer).__name__} is not memory of the emulated device")
    return span.buffer.data[span.offset : span.offset + span.nbytes]
