"""A CUDA GPU as a device, through cuda.core."""

from __future__ import annotations

import ctypes
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmlab.compile.artifact import Artifact, ParameterType
from gemmlab.core.packages import CUDA_BINDINGS, CUDA_CORE
from gemmlab.core.tensor_map import TensorMap, pointed_to
from gemmlab.devices import tensor_maps
from gemmlab.devices.device import Argument, Dim3, Launched, Span, check_compiled_block
from gemmlab.errors import DeviceError, GemmlabError, LaunchError
from gemmlab.hardware.limits import STATIC_SMEM, check_launch
from gemmlab.hardware.specs import Gpu, architecture

if TYPE_CHECKING:
    from gemmlab.devices.flow_cuda import CudaRuntime

NO_DRIVER = "this machine has no NVIDIA driver, so no GPU can be used"
_WARM_UP_S = 0.05
_MEASURE_S = 0.3
_REPEATS = 50
TIMING = {"timing_enabled": True}  # options of an event

# Compute capabilities whose architecture-specific instructions kernels may use.
_SPECIFIC = {(9, 0): "sm_90a", (10, 0): "sm_100a"}


class CudaBuffer:
    """Device memory of `nbytes` bytes; copies return when they are done."""

    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        self.nbytes = nbytes
        self._device = device
        with driver_errors(f"allocating {nbytes} bytes on {device.name}"):
            self._memory = device.gpu.allocate(nbytes, stream=device.stream)
            device.stream.sync()

    @property
    def address(self) -> int:
        return int(self._memory.handle)

    def write(self, data: np.ndarray, offset: int = 0) -> None:
        raw = np.ascontiguousarray(data).view(np.uint8).ravel()
        if offset < 0 or offset + raw.size > self.nbytes:
            raise DeviceError(
                f"{raw.size} bytes at offset {offset} do not fit in a buffer of {self.nbytes}"
            )
        if raw.size:
            self._device.call(
                "cuMemcpyHtoDAsync",
                self.address + offset,
                raw.ctypes.data,
                raw.size,
                self._device.stream.handle,
            )

    def read(self) -> np.ndarray:
        raw = np.empty(self.nbytes, np.uint8)
        if raw.size:
            self._device.call(
                "cuMemcpyDtoHAsync",
                raw.ctypes.data,
                self.address,
                raw.size,
                self._device.stream.handle,
            )
        return raw


class Start(NamedTuple):
    """All that a launch needs."""

    config: Any
    kernel: Any
    args: list[np.generic | bytes]
    memory: Sequence[Argument]  # what the arguments point to, kept until the launch is over


class CudaDevice:
    """GPU number `ordinal`. Raises MissingDependencyError or DeviceError when it cannot be used."""

    def __init__(self, arch: str | None = None, ordinal: int = 0) -> None:
        self._cu = _driver()  # first: without one, no package helps
        core: Any = CUDA_CORE.load()
        self._core = core
        with driver_errors("no usable NVIDIA GPU"):
            self.gpu = core.Device(ordinal)
            self.gpu.set_current()
            self.stream = self.gpu.create_stream()
            major, minor = self.gpu.compute_capability
            self.name = f"cuda:{ordinal} {self.gpu.name}"
        self.arch = arch or _SPECIFIC.get((major, minor), f"sm_{major}{minor}")
        self._kernels: dict[tuple[str, str | bytes], Any] = {}

    def allocate(self, nbytes: int) -> CudaBuffer:
        return CudaBuffer(self, nbytes)

    def launch(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Launched:
        """Run once, to the end. Raises LaunchError past a limit, DeviceError when the run fails."""
        start = self._prepare(artifact, grid, block, args, dynamic_smem, cluster)
        with driver_errors(f"running {artifact.entry} on {self.name}"):
            launched = Launched(time_s=self._timed(start))
        for address, image in self._variables(artifact, start.kernel):
            self.call(
                "cuMemcpyDtoHAsync", image.ctypes.data, address, image.size, self.stream.handle
            )
        return launched

    def measure(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> float:
        """Median GPU time in seconds of launches after a warm-up, caches warm, clocks as they are.

        Takes under a second for a kernel that itself takes less than 0.1 s.
        """
        start = self._prepare(artifact, grid, block, args, dynamic_smem, cluster)
        with driver_errors(f"timing {artifact.entry} on {self.name}"):
            for _ in _until(_WARM_UP_S, _REPEATS):
                self._timed(start)
            return statistics.median([self._timed(start) for _ in _until(_MEASURE_S, _REPEATS)])

    @property
    def facts(self) -> Gpu:
        """What the driver says of this GPU. UnknownNameError for an architecture that the table of
        specifications lacks."""
        told, (major, minor) = self.gpu.properties, self.gpu.compute_capability
        arch = architecture(f"sm_{major}{minor}")
        sms, mhz = told.multiprocessor_count, told.clock_rate // 1000
        return Gpu(
            name=self.gpu.name,
            arch=arch.name,
            sms=sms,
            boost_mhz=mhz,
            fp32_tflops=2e-6 * sms * arch.fp32_lanes * mhz,
            # Two transfers per clock; kHz · bits / 8.
            bandwidth_gbs=2e-6 * told.memory_clock_rate * told.global_memory_bus_width / 8,
            l2_mb=told.l2_cache_size / 2**20,
            source="read from the device",
        )

    def versions(self) -> dict[str, str]:
        version = self.call("cuDriverGetVersion")
        return {
            "cuda-driver": f"{version // 1000}.{version % 1000 // 10}",
            "cuda-core": importlib.metadata.version("cuda-core"),
            "cuda-bindings": importlib.metadata.version("cuda-bindings"),
            "numpy": np.__version__,
        }

    def prepare(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Span | int | float],
        dynamic_smem: int = 0,
    ) -> Callable[[], None]:
        """Check and load now; each call of what is returned enqueues one launch and returns.

        Raises LaunchError past a limit.
        """
        start = self._prepare(artifact, grid, block, args, dynamic_smem)
        return lambda: self._start(self.stream, start)

    def clear(self, span: Span) -> None:
        """Enqueue the filling of memory with zeros."""
        self.ask("cuMemsetD8Async", _address(span), 0, span.nbytes, self.stream.handle)

    def copy(self, target: Span, source: Span) -> None:
        """Enqueue a copy of the whole of `target`, within device memory."""
        addresses = _address(target), _address(source)
        self.ask("cuMemcpyDtoDAsync", *addresses, target.nbytes, self.stream.handle)

    def call(self, function: str, *args: Any) -> Any:
        """Call the driver, wait for the stream, return what the call gave back."""
        given = self.ask(function, *args)
        with driver_errors(function):
            self.stream.sync()
        return given

    def ask(self, function: str, *args: Any) -> Any:
        """Call the driver; return the first thing that the call gave back."""
        with driver_errors(function):
            error, *values = getattr(self._cu, function)(*args)
            if int(error) != 0:
                raise DeviceError(f"{function} on {self.name}: {error.name}")
        return values[0] if values else None

    def enqueue(
        self,
        stream: Any,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Span | int | float],
        dynamic_smem: int = 0,
    ) -> tuple[Any, Any]:
        """Launch on a stream and do not wait; the events around it. Raises as `launch` does."""
        start = self._prepare(artifact, grid, block, args, dynamic_smem)
        with driver_errors(f"launching {artifact.entry} on {self.name}"):
            return self._launched(stream, start)

    @contextmanager
    def runtime(self, artifact: Artifact) -> Iterator[CudaRuntime]:
        from gemmlab.devices.flow_cuda import CudaRuntime

        with ExitStack() as taken:
            yield CudaRuntime(self, artifact, taken)

    def _prepare(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int,
        cluster: Dim3 | None = None,
    ) -> Start:
        """Check, load and type everything that a launch needs."""
        taken = artifact.resources
        static_smem, registers = (taken.static_smem_bytes, taken.registers) if taken else (0, 0)
        check_launch(artifact.arch, grid, block, static_smem, dynamic_smem, registers)
        check_compiled_block(artifact, block)
        placed = self._with_maps_in_memory(artifact, args)
        typed = _typed(artifact, placed)
        kernel = self._load(artifact)
        for address, image in self._variables(artifact, kernel):
            self.call(
                "cuMemcpyHtoDAsync", address, image.ctypes.data, image.size, self.stream.handle
            )
        if static_smem + dynamic_smem > STATIC_SMEM:
            attribute = (
                self._cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            )
            self.call(
                "cuKernelSetAttribute", attribute, dynamic_smem, kernel.handle, self.gpu.device_id
            )
        if cluster is None and not any(isinstance(arg, bytes) for arg in typed):
            config = self._core.LaunchConfig(grid=grid, block=block, shmem_size=dynamic_smem)
        else:
            config = tensor_maps.launch_config(grid, block, dynamic_smem, cluster or (1, 1, 1))
        return Start(config, kernel, typed, placed)

    def _with_maps_in_memory(self, artifact: Artifact, args: Sequence[Argument]) -> list[Argument]:
        """The arguments, with device memory in place of tensor maps that a pointer points to."""
        _check_count(artifact, args)
        placed = list[Argument]()
        for index, (parameter, arg) in enumerate(zip(artifact.parameters, args, strict=True)):
            maps = pointed_to(arg, parameter.size)
            if maps:
                data = b"".join(
                    _encoded(_declared(artifact.entry, index, parameter), m) for m in maps
                )
                buffer = self.allocate(len(data))
                buffer.write(np.frombuffer(data, np.uint8))
                arg = Span(buffer, 0, len(data))
            placed.append(arg)
        return placed

    def _load(self, artifact: Artifact) -> Any:
        """The kernel on this device, loaded once."""
        key = (artifact.entry, artifact.cubin or artifact.ptx)
        if key not in self._kernels:
            with driver_errors(f"loading {artifact.entry} for {artifact.arch} on {self.name}"):
                if artifact.cubin:
                    code = self._core.ObjectCode.from_cubin(artifact.cubin)
                else:
                    code = self._core.ObjectCode.from_ptx(artifact.ptx.encode())
                self._kernels[key] = code.get_kernel(artifact.entry)
        return self._kernels[key]

    def _variables(self, artifact: Artifact, kernel: Any) -> Iterator[tuple[int, np.ndarray]]:
        """Where the module's variables lie on this device, and their bytes on the host.

        Raises DeviceError for one that was set from Python and that the driver cannot find.
        """
        images = artifact.variables.images
        if not images:
            return
        module = self.ask("cuLibraryGetModule", self.ask("cuKernelGetLibrary", kernel.handle))
        for symbol, image in images.items():
            error, address, _ = self._cu.cuModuleGetGlobal(module, symbol.encode())
            if error == self._cu.CUresult.CUDA_SUCCESS:
                yield int(address), image
            elif error != self._cu.CUresult.CUDA_ERROR_NOT_FOUND:
                raise DeviceError(f"variable {symbol} on {self.name}: {error.name}")
            elif symbol.encode() in (artifact.cubin or b""):  # else no kernel uses it: it is gone
                artifact.variables.mark_missing(symbol, self.name)

    def _timed(self, start: Start) -> float:
        """Launch once, to the end; seconds between the events around it."""
        begin, end = self._launched(self.stream, start)
        end.sync()
        return float(end - begin) / 1e3

    def _launched(self, stream: Any, start: Start) -> tuple[Any, Any]:
        begin = stream.record(options=TIMING)
        self._start(stream, start)
        return begin, stream.record(options=TIMING)

    def _start(self, stream: Any, start: Start) -> None:
        if isinstance(start.config, self._core.LaunchConfig):
            self._core.launch(stream, start.config, start.kernel, *start.args)
        else:
            tensor_maps.launch(stream.handle, start.config, start.kernel, start.args)


def _address(span: Span) -> int:
    assert isinstance(span.buffer, CudaBuffer)
    return span.buffer.address + span.offset


def has_driver() -> bool:
    """Whether there is a driver, found out in no time; whether it can be used is another thing."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver() -> Any:
    """The driver's bindings. Raises DeviceError where there is no driver or no GPU."""
    driver: Any = CUDA_BINDINGS.load()
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as missing:  # its library is not found
        raise DeviceError(NO_DRIVER) from missing
    if int(error) != 0:
        raise DeviceError(f"the NVIDIA driver cannot be used: {error.name}")
    return driver


def _until(seconds: float, most: int) -> Iterator[int]:
    """Count from 0 until the time is over, at least once and at most `most` times."""
    stop = time.perf_counter() + seconds
    for i in range(most):
        yield i
        if time.perf_counter() > stop:
            return


@contextmanager
def driver_errors(doing: str) -> Iterator[None]:
    """Whatever cuda.core raises (it has no public base class) becomes a DeviceError."""
    try:
        yield
    except GemmlabError:
        raise
    except Exception as error:
        raise DeviceError(f"{doing}: {error}") from error


def _check_count(artifact: Artifact, args: Sequence[Any]) -> None:
    if len(args) != len(artifact.parameters):
        wanted = len(artifact.parameters)
        raise LaunchError(f"{artifact.entry} takes {wanted} arguments, {len(args)} were given")


def _typed(artifact: Artifact, args: Sequence[Argument]) -> list[np.generic | bytes]:
    """The arguments as scalars of exactly the sizes that the kernel declares, maps as bytes."""
    pairs = zip(artifact.parameters, args, strict=True)
    return [_scalar(artifact.entry, i, parameter, arg) for i, (parameter, arg) in enumerate(pairs)]


def _declared(entry: str, index: int, parameter: ParameterType) -> str:
    return f"{entry}, argument {index} (.{parameter.ptx_type}, {parameter.size} bytes)"


def _encoded(declared: str, tensor_map: TensorMap) -> bytes:
    span = tensor_map.array
    if not isinstance(span, Span) or not isinstance(span.buffer, CudaBuffer):
        raise LaunchError(f"{declared}: a tensor map of {span!r}, which is no device memory")
    return tensor_maps.encode(tensor_map, _address(span))


def _scalar(entry: str, index: int, parameter: ParameterType, arg: Argument) -> np.generic | bytes:
    declared = _declared(entry, index, parameter)
    if isinstance(arg, TensorMap):
        if parameter.size != 128:
            raise LaunchError(f"{declared}: a tensor map has 128 bytes")
        return _encoded(declared, arg)
    if isinstance(arg, Span):
        if not isinstance(arg.buffer, CudaBuffer) or parameter.size != 8:
            raise LaunchError(f"{declared}: cannot take {type(arg.buffer).__name__}")
        return np.uint64(_address(arg))
    if isinstance(arg, list):
        raise LaunchError(f"{declared}: a list of {len(arg)} is for a pointer to tensor maps")
    if parameter.ptx_type in ("f32", "f64"):
        return np.float32(arg) if parameter.size == 4 else np.float64(arg)
    if parameter.size not in (1, 2, 4, 8) or not isinstance(arg, (int, np.integer)):
        raise LaunchError(f"{declared}: cannot take {arg!r}")
    bits = 8 * parameter.size
    value = int(arg)
    if not -(2 ** (bits - 1)) <= value < 2**bits:
        raise LaunchError(f"{declared}: {value} does not fit")
    unsigned: np.generic = np.dtype(f"u{parameter.size}").type(value % 2**bits)
    return unsigned
