"""Launches through the CUDA driver, with their arguments packed into bytes.

A kernel's configuration and the layout of its arguments are prepared once. To launch it at a new
shape then takes one call that packs its numbers, and one of the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import itemgetter
from struct import Struct
from typing import Any, NamedTuple

from cuda.bindings import driver as cu

from gemmlab.compile.artifact import Artifact
from gemmlab.errors import DeviceError
from gemmlab.hardware.limits import STATIC_SMEM
from gemmlab.kernels.gemm.sm90.config import LINE
from gemmlab.kernels.rung import Dim3
from gemmlab.linalg.planning.kinds import Kind, LaunchNumbers, launch_numbers
from gemmlab.linalg.planning.launch import Code, Map, PlannedLaunch
from gemmlab.linalg.planning.program import Source
from gemmlab.linalg.runtime import driver, gpus
from gemmlab.linalg.runtime.driver import call
from gemmlab.linalg.runtime.kernels import check_arguments, loadable, prepare

Addresses = tuple[int, ...]  # of the caller's arrays, in the order of `program.NAMES`

_FORMATS = {"u64": "Q", "u32": "I", "s32": "i", "f32": "f"}  # PTX type -> format of `struct`
_ADDRESS = Struct("=Q")
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64  # of a CUtensorMap


class Arguments:
    """Memory for the arguments of a kernel, and pointers to each, as the driver takes them."""

    def __init__(self, offsets: Sequence[int], nbytes: int) -> None:
        self._memory = ctypes.create_string_buffer(nbytes + _MAP_ALIGNMENT)
        start = ctypes.addressof(self._memory)
        skipped = -start % _MAP_ALIGNMENT
        self.start = start + skipped
        self.bytes = memoryview(self._memory).cast("B")[skipped : skipped + nbytes]
        self._pointers = (ctypes.c_void_p * len(offsets))(*(self.start + at for at in offsets))
        self.pointers = ctypes.addressof(self._pointers)

    def put(self, at: int, address: int) -> None:
        """Set the argument at an offset to an address."""
        _ADDRESS.pack_into(self.bytes, at, address)


@dataclass(slots=True)
class BoundLaunch:
    """A launch with its arguments as bytes, except for the addresses of the caller's arrays."""

    kernel: Kernel
    grid: tuple[int, int, int]
    image: bytes
    moving: list[tuple[int, int]]  # offset of an argument, and which address it takes

    def launch(self, stream: int, addresses: Addresses) -> None:
        """Enqueue the launch on a stream, given its handle."""
        kernel, config, arguments = self.kernel, self.kernel.config, self.kernel.arguments
        arguments.bytes[:] = self.image
        for at, i in self.moving:
            _ADDRESS.pack_into(arguments.bytes, at, addresses[i])
        config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        config.hStream = stream
        (error,) = cu.cuLaunchKernelEx(config, kernel.function, arguments.pointers, 0)
        if error:
            raise DeviceError(f"cuLaunchKernelEx: {error.name}")


class Kernel:
    """A kernel in the current context, its launch configuration, and memory for its arguments.

    Only one thread at a time may use it.
    """

    def __init__(self, launch: PlannedLaunch, artifact: Artifact) -> None:
        check_arguments(launch, artifact)
        self.function = _function(launch.code, int(call(cu.cuCtxGetCurrent)))
        parameters = artifact.parameters[len(launch.maps) :]
        formats = [_FORMATS[parameter.ptx_type] for parameter in parameters]
        self.numbers = Struct("=" + "".join(formats))
        self._names = [parameter.name for parameter in parameters]
        self._first = _MAP_BYTES * len(launch.maps)
        sizes = [Struct(f"={one}").size for one in formats]
        offsets = list(accumulate(sizes, initial=self._first))
        self.nbytes = offsets.pop()
        self.offsets = [*range(0, self._first, _MAP_BYTES), *offsets]
        self.arguments = Arguments(self.offsets, self.nbytes)
        self._places = [*zip(self._names, offsets, strict=True)]
        self._maps = [_Encoder(wanted) for wanted in launch.maps]
        self.block, self.dynamic_smem = launch.block, launch.dynamic_smem
        self.config = _config(launch)
        if launch.dynamic_smem > STATIC_SMEM:
            name = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(cu.cuFuncSetAttribute, self.function, name, launch.dynamic_smem)

    def encoded(self, maps: tuple[Any, ...]) -> bytes:
        """Return tensor maps as bytes, given address, shape and strides of each."""
        at = self.arguments.start
        for encoder, wanted in zip(self._maps, maps, strict=True):
            encoder.encode(at, *wanted)
            at += _MAP_BYTES
        return bytes(self.arguments.bytes[: self._first])

    def form(self, launch: PlannedLaunch) -> Form:
        """Return how launches with the same arguments' names as `launch` are bound."""
        names, args = [*launch.args], launch.args
        order: Callable[..., Any] = itemgetter(*(names.index(name) for name in self._names))
        moving = [(at, x.index) for name, at in self._places if type(x := args[name]) is Source]
        return Form(self, order, moving)


class Form(NamedTuple):
    """Binds the launches of a kernel that differ in numbers alone."""

    kernel: Kernel
    order: Callable[[tuple[Any, ...]], tuple[Any, ...]]  # puts arguments into the kernel's order
    moving: list[tuple[int, int]]

    def bind(self, grid: Dim3, args: tuple[Any, ...], maps: tuple[Any, ...]) -> BoundLaunch:
        """Bind a launch with these `kinds.LaunchNumbers`. Raises DeviceError."""
        kernel = self.kernel
        image = kernel.numbers.pack(*self.order(args))
        if maps:
            image = kernel.encoded(maps) + image
        return BoundLaunch(kernel, grid, image, self.moving)


class Launcher:
    """The kernels of one GPU, loaded on demand. Only one thread at a time may use it."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._kernels: dict[Code, Kernel] = {}
        self._forms: dict[Kind, list[Form]] = {}

    def __bool__(self) -> bool:
        """Whether a kernel has been loaded."""
        return bool(self._kernels)

    def bind(self, launches: Sequence[PlannedLaunch]) -> list[BoundLaunch]:
        """Bind launches. Raises the errors of `kernels.artifact`."""
        forms = self._loaded(launches)
        return [form.bind(*launch_numbers(x)) for form, x in zip(forms, launches, strict=True)]

    def bind_kind(self, kind: Kind, numbers: Sequence[LaunchNumbers]) -> list[BoundLaunch]:
        """Bind the launches of a product of that kind."""
        forms = self._forms.get(kind)
        if forms is None:
            forms = self._forms[kind] = self._loaded(kind.launches)
        return [form.bind(*x) for form, x in zip(forms, numbers, strict=True)]

    def _loaded(self, launches: Sequence[PlannedLaunch]) -> list[Form]:
        kernels, forms = self._kernels, []
        for launch in launches:
            kernel = kernels.get(launch.code)
            if kernel is None:
                prepare(launch.code for launch in launches)  # all at once, in parallel
                with gpus.current(self._device), driver.relaxed():
                    kernel = kernels[launch.code] = Kernel(launch, loadable(launch.code))
            forms.append(kernel.form(launch))
        return forms


@cache
def _function(code: Code, _context: int) -> Any:
    """Return the compiled kernel, loaded once per context."""
    return driver.load(loadable(code))


def _config(launch: PlannedLaunch) -> Any:
    """Return the launch's configuration, without its grid and stream.

    By programmatic dependent launch, a kernel starts before the previous one has finished.
    """
    size, early = cu.CUlaunchAttribute(), cu.CUlaunchAttribute()
    size.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    cluster = size.value.clusterDim
    cluster.x, cluster.y, cluster.z = launch.cluster, 1, 1
    early.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    config = cu.CUlaunchConfig()
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.dynamic_smem
    config.attrs = [size, early]
    config.numAttrs = len(config.attrs)
    return config


class _Encoder:
    """Encodes tensor maps with the same box, by the driver's C interface.

    Its Python bindings take three times as long, to convert lists.
    """

    def __init__(self, wanted: Map) -> None:
        self._function = _driver().cuTensorMapEncodeTiled
        # Sizes of the axes, bytes between lines and between parts; the box, element strides.
        self._layout = Struct("=5Q3I3I")
        self._rest = LINE, wanted.copy.lines, 1, 1, 1, 1
        self._memory = ctypes.create_string_buffer(self._layout.size)
        at = ctypes.addressof(self._memory)
        pointers = [ctypes.c_void_p(at + offset) for offset in (0, 24, 40, 52)]
        dtype = f"CU_TENSOR_MAP_DATA_TYPE_{wanted.copy.dtype.upper()}"
        kind = ctypes.c_int(getattr(cu.CUtensorMapDataType, dtype))
        options = (
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        self._target, self._address = ctypes.c_void_p(), ctypes.c_void_p()
        tensor = kind, ctypes.c_uint32(3), self._address, *pointers
        self._args = self._target, *tensor, *map(ctypes.c_int, options)

    def encode(self, target: int, address: int, *sizes: int) -> None:
        """Write the CUtensorMap to `target` in host memory. Raises DeviceError."""
        self._layout.pack_into(self._memory, 0, *sizes, *self._rest)
        self._target.value, self._address.value = target, address
        status = self._function(*self._args)
        if status:
            name = cu.CUresult(status).name
            raise DeviceError(f"cuTensorMapEncodeTiled at {address:#x}: {name}")


@cache
def _driver() -> Any:
    """The driver's library, which its Python bindings have loaded before."""
    return ctypes.CDLL("libcuda.so.1")
