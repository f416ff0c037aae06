"""Launches through the CUDA driver, with their arguments packed into bytes.

A kernel's configuration and the layout of its arguments are prepared once. To launch it at a new
shape then takes one call that packs its numbers, and one of the driver, by its C interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from cuda.bindings import driver as cu

from gemmlab.compile.artifact import Artifact
from gemmlab.errors import DeviceError
from gemmlab.linalg.planning.kinds import Kind, LaunchNumbers, Parameters, launch_numbers
from gemmlab.linalg.planning.launch import Code, Map, PlannedLaunch
from gemmlab.linalg.planning.program import Source
from gemmlab.linalg.runtime import driver, gpus
from gemmlab.linalg.runtime.driver import call
from gemmlab.linalg.runtime.kernels import check_arguments, loadable, prepare

if TYPE_CHECKING:
    from gemmlab.kernels.rung import Dim3

Addresses = tuple[int, ...]  # of the caller's arrays, in the order of `program.NAMES`

_FORMATS = {"u64": "Q", "u32": "I", "s32": "i", "f32": "f"}  # PTX type -> format of `struct`
_ADDRESS, _GRID, _MAP = Struct("=Q"), Struct("=3I"), Struct("=6Q")
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64  # of a CUtensorMap
_ALIGNMENT = 16  # bytes: of the address and of the strides of a tensor that TMA can copy


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

    def putter(self, at: int) -> Callable[[int], None]:
        """Return a function that sets the argument at an offset to an address."""
        return partial(_ADDRESS.pack_into, self.bytes, at)


@dataclass(slots=True)
class BoundLaunch:
    """A launch with its arguments as bytes, except for the addresses of the caller's arrays."""

    kernel: Kernel
    grid: Dim3
    image: bytes
    moving: list[tuple[int, int]]  # offset of an argument, and which address it takes
    maps: list[MovingMap]

    def launch(self, stream: int, addresses: Addresses) -> None:
        """Enqueue the launch on a stream, given its handle. Raises DeviceError."""
        kernel = self.kernel
        kernel.arguments.bytes[:] = self.image
        for at, i in self.moving:
            _ADDRESS.pack_into(kernel.arguments.bytes, at, addresses[i])
        for which, numbers, i in self.maps:
            kernel.encoders[which].encode(addresses[i], *numbers)
        kernel.enqueue(self.grid, stream)


class MovingMap(NamedTuple):
    """A tensor map of one of the caller's arrays."""

    which: int  # of the kernel's
    numbers: tuple[int, ...]  # shape and strides
    array: int  # whose address it takes


class Kernel:
    """A kernel in the current context, its launch configuration, and memory for its arguments.

    Only one thread at a time may use it.
    """

    def __init__(self, launch: PlannedLaunch, artifact: Artifact) -> None:
        check_arguments(launch, artifact)
        self.function = _function(launch.code, int(call(cu.cuCtxGetCurrent)))
        parameters = artifact.parameters[len(launch.maps) :]
        formats = [_FORMATS[parameter.ptx_type] for parameter in parameters]
        self.parameters = [(parameter.name, parameter.ptx_type) for parameter in parameters]
        first = _MAP_BYTES * len(launch.maps)
        sizes = [Struct(f"={one}").size for one in formats]
        offsets = list(accumulate(sizes, initial=first))
        self.nbytes = offsets.pop()
        self.offsets = [*range(0, first, _MAP_BYTES), *offsets]
        self.arguments = arguments = Arguments(self.offsets, self.nbytes)
        names = [parameter.name for parameter in parameters]
        self._places = [*zip(names, offsets, strict=True)]
        numbers = Struct("=" + "".join(formats))
        self._put = partial(numbers.pack_into, arguments.bytes, first)
        self._maps = launch.maps
        self.encoders = [self.encoder(i, arguments.start) for i in range(len(launch.maps))]
        self.block, self.dynamic_smem = launch.block, launch.dynamic_smem
        self.enqueue = _Enqueuer(launch, self.function, arguments.pointers).enqueue
        if launch.dynamic_smem:  # with static shared memory, even a small size may need this
            name = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(cu.cuFuncSetAttribute, self.function, name, launch.dynamic_smem)

    def encoder(self, which: int, start: int) -> Encoder:
        """Return an encoder of one of the kernel's tensor maps, if its arguments are at `start`."""
        return Encoder(start + self.offsets[which], self._maps[which])

    def fill(self, args: tuple[Any, ...], maps: tuple[Any, ...]) -> None:
        """Put `kinds.LaunchNumbers` into the memory for arguments. Raises DeviceError."""
        self._put(*args)
        for encoder, wanted in zip(self.encoders, maps, strict=True):
            encoder.encode(*wanted)

    def form(self, launch: PlannedLaunch) -> Form:
        """Return how to bind launches that take the caller's arrays as `launch` does."""
        args, maps = launch.args, enumerate(launch.maps)
        moving = [(at, x.index) for name, at in self._places if type(x := args[name]) is Source]
        return Form(self, moving, [(i, x.index) for i, m in maps if type(x := m.address) is Source])


class Form(NamedTuple):
    """Binds the launches of a kernel that differ in numbers alone."""

    kernel: Kernel
    moving: list[tuple[int, int]]
    maps: list[tuple[int, int]]  # which map, and which address it takes

    def bind(self, grid: Dim3, args: tuple[Any, ...], maps: tuple[Any, ...]) -> BoundLaunch:
        """Bind a launch with these `kinds.LaunchNumbers`. Raises DeviceError."""
        self.kernel.fill(args, maps)
        moving = [MovingMap(i, maps[i][1:], index) for i, index in self.maps]
        image = bytes(self.kernel.arguments.bytes)
        return BoundLaunch(self.kernel, grid, image, self.moving, moving)


class Chain:
    """The launches of a kind of products. They take their arguments from one block of memory."""

    def __init__(self, kind: Kind, forms: list[Form]) -> None:
        self.forms, slots = forms, kind.slots
        formats = [_FORMATS[x] for x in (*slots.types, *(x for x, _ in slots.constants))]
        count = len(slots.types)
        moving, fixed = (Struct("=" + "".join(x)) for x in (formats[:count], formats[count:]))
        # Encoded maps come first, then numbers that differ, then constants.
        first = _MAP_BYTES * sum(map(len, slots.maps))
        ends = [*accumulate((Struct(f"={x}").size for x in formats), initial=first)]
        encoded, offsets, encoders = iter(range(0, first, _MAP_BYTES)), [], []
        for launch, args, maps in zip(kind.launches, slots.args, slots.maps, strict=True):
            targets = [next(encoded) for _ in maps]
            offsets.append(targets + [ends[i] for i in args])
            encoders += [*zip(targets, launch.maps, maps, strict=True)]
        arguments = Arguments([x for each in offsets for x in each], ends[-1])
        self._put = partial(moving.pack_into, arguments.bytes, first)
        fixed.pack_into(arguments.bytes, first + moving.size, *(x for _, x in slots.constants))
        start, pointers = arguments.start, arguments.pointers
        self._encoders = [Encoder(start + to, x, start + ends[i]) for to, x, i in encoders]
        self._enqueuers: list[_Enqueuer] = []
        for launch, form, each in zip(kind.launches, forms, offsets, strict=True):
            self._enqueuers.append(_Enqueuer(launch, form.kernel.function, pointers))
            pointers += _ADDRESS.size * len(each)
        self._arguments, self._stream = arguments, -1

    def launch(self, grids: Sequence[Dim3], numbers: Sequence[Any], stream: int) -> None:
        """Enqueue the launches with what `kind.plan` has returned. Raises DeviceError.

        Does what `encode` and `enqueue` do without calling them: the calls would take a fifth of
        the time.
        """
        if stream != self._stream:
            for enqueuer in self._enqueuers:
                enqueuer.use(stream)
            self._stream = stream
        self._put(*numbers)
        for encoder in self._encoders:
            if status := encoder.function(*encoder.args):
                encoder.check(status)
        for enqueuer, grid in zip(self._enqueuers, grids, strict=True):
            enqueuer.put_grid(*grid)
            if status := enqueuer.function(*enqueuer.args):
                raise enqueuer.error(status)


class Launcher:
    """The kernels of one GPU, loaded on demand. Only one thread at a time may use it."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._kernels: dict[tuple[Code, int], Kernel] = {}  # with the blocks of a cluster
        self._of_kinds: dict[Kind, Chain] = {}

    def __bool__(self) -> bool:
        """Whether a kernel has been loaded."""
        return bool(self._kernels)

    def bind(self, launches: Sequence[PlannedLaunch]) -> list[BoundLaunch]:
        """Bind launches. Raises the errors of `kernels.artifact`."""
        forms = self._loaded(launches)
        pairs = zip(forms, launches, strict=True)
        return [form.bind(*launch_numbers(x, form.kernel.parameters)) for form, x in pairs]

    def bind_kind(self, kind: Kind, each: Iterable[LaunchNumbers]) -> list[BoundLaunch]:
        """Bind the launches of a product of that kind."""
        return [form.bind(*x) for form, x in zip(self.chain(kind).forms, each, strict=True)]

    def parameters(self, launches: Iterable[PlannedLaunch]) -> list[Parameters]:
        """Return the names and types of the arguments of loaded kernels, as the kernels take
        them."""
        return [self._kernels[_key(launch)].parameters for launch in launches]

    def chain(self, kind: Kind) -> Chain:
        """Return the launches of products of that kind."""
        found = self._of_kinds.get(kind)
        if found is None:
            found = self._of_kinds[kind] = Chain(kind, self._loaded(kind.launches))
        return found

    def _loaded(self, launches: Sequence[PlannedLaunch]) -> list[Form]:
        kernels, forms = self._kernels, []
        for launch in launches:
            kernel = kernels.get(_key(launch))
            if kernel is None:
                prepare(launch.code for launch in launches)  # all at once, in parallel
                with gpus.current(self._device), driver.relaxed():
                    kernel = kernels[_key(launch)] = Kernel(launch, loadable(launch.code))
            forms.append(kernel.form(launch))
        return forms


def _key(launch: PlannedLaunch) -> tuple[Code, int]:
    """The key of a kernel. Launches that differ only in grid and arguments share it."""
    return launch.code, launch.cluster


@cache
def _function(code: Code, _context: int) -> Any:
    """Return the compiled kernel, loaded once per context."""
    return driver.load(loadable(code))


def _config(launch: PlannedLaunch) -> Any:
    """Return the launch's configuration, without its grid and stream.

    With programmatic dependent launch, a kernel starts before the previous one has finished.
    Neither that nor clusters exist before compute capability 9.0.
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
    config.attrs = [size, early] if launch.arch.capability >= (9, 0) else []
    config.numAttrs = len(config.attrs)
    return config


class _Enqueuer:
    """Enqueues a kernel with arguments that lie at the same addresses each time.

    After `put_grid` and `use`, `function(*args)` launches the kernel and returns a status.
    """

    __slots__ = ("_config", "_stream", "_stream_field", "args", "function", "put_grid")

    def __init__(self, launch: PlannedLaunch, function: Any, pointers: int) -> None:
        self._config = _config(launch)
        at = self._config.getPtr()
        # The grid and the stream lie at offsets 0 and 32 of a CUlaunchConfig.
        self.put_grid = partial(_GRID.pack_into, (ctypes.c_char * _GRID.size).from_address(at), 0)
        self._stream_field, self._stream = ctypes.c_void_p.from_address(at + 32), -1
        self.function = driver.library().cuLaunchKernelEx
        self.args = tuple(map(ctypes.c_void_p, (at, int(function), pointers, None)))

    def use(self, stream: int) -> None:
        """Set the stream, given its handle."""
        if stream != self._stream:
            self._stream_field.value = self._stream = stream

    def enqueue(self, grid: Dim3, stream: int) -> None:
        """Launch the kernel with the arguments that are in the memory. Raises DeviceError."""
        self.put_grid(*grid)
        self.use(stream)
        if status := self.function(*self.args):
            raise self.error(status)

    @staticmethod
    def error(status: int) -> DeviceError:
        return driver.failed("cuLaunchKernelEx", status)


class Encoder:
    """Encodes tensor maps with the same box to one place in host memory.

    `function(*args)` encodes a map of the numbers in memory and returns a status.
    """

    __slots__ = ("_address", "_memory", "_numbers", "_put", "_required", "args", "function")

    def __init__(self, target: int, wanted: Map, numbers: int | None = None) -> None:
        """numbers: where the address, three sizes and two strides lie; None: in memory of its
        own."""
        self.function = driver.library().cuTensorMapEncodeTiled
        # Sizes of the axes, bytes between lines and between parts; the box, element strides.
        rest = Struct("=3I3I")
        self._memory = ctypes.create_string_buffer(_MAP.size + rest.size)
        self._put, self._required = partial(_MAP.pack_into, self._memory, 0), wanted.required
        box = wanted.copy.line, wanted.copy.lines, 1
        rest.pack_into(self._memory, _MAP.size, *box, 1, 1, 1)
        own = ctypes.addressof(self._memory)
        at = own if numbers is None else numbers
        self._numbers = (ctypes.c_uint64 * 6).from_address(at)
        last = own + _MAP.size
        pointers = [ctypes.c_void_p(x) for x in (at + 8, at + 32, last, last + 12)]
        dtype = f"CU_TENSOR_MAP_DATA_TYPE_{wanted.copy.dtype.upper()}"
        kind = ctypes.c_int(getattr(cu.CUtensorMapDataType, dtype))
        options = (
            cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        self._address = ctypes.c_void_p.from_address(at)
        tensor = kind, ctypes.c_uint32(3), self._address, *pointers
        self.args = ctypes.c_void_p(target), *tensor, *map(ctypes.c_int, options)

    def encode(self, address: int, *numbers: int) -> None:
        """Encode the map of an address, three sizes and two strides. Raises DeviceError.

        An address of 0 is not known yet.
        """
        self._put(address, *numbers)
        if address and (status := self.function(*self.args)):
            self.check(status)

    def check(self, status: int) -> None:
        """Raise DeviceError for an error, unless a map that is not required is not aligned."""
        address, *_, across, down = self._numbers
        if self._required or not any(x % _ALIGNMENT or not x for x in (address, across, down)):
            raise driver.failed(f"cuTensorMapEncodeTiled at {self._address.value or 0:#x}", status)
