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
from gemmlab.hardware.specs import Gpu, architecture, target_of

if TYPE_CHECKING:
    from gemmlab.devices.flow_cuda import CudaRuntime

NO_DRIVER = "this machine has no NVIDIA driver, so no GPU can be used"
_WARM_UP_S = 0.05
_MEASURE_S = 0.3
_REPEATS = 50
TIMING = {"timing_enabled": True}  # event options


class CudaBuffer:
    """Device memory of `nbytes` bytes. Copies are synchronous."""

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
                f"{raw.size} bytes at offset {offset} do not fit in a buffer of {self.nbytes} bytes"
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


class PreparedLaunch(NamedTuple):
    """A launch that has been checked, with its kernel loaded and its arguments converted."""

    config: Any
    kernel: Any
    args: list[np.generic | bytes]
    memory: Sequence[Argument]  # keeps the memory that `args` point to alive


class CudaDevice:
    """GPU number `ordinal`. Raises MissingDependencyError or DeviceError if it is not usable."""

    def __init__(self, arch: str | None = None, ordinal: int = 0) -> None:
        self._cu = _driver()  # first: without a driver, no package would help
        core: Any = CUDA_CORE.load()
        self._core = core
        with driver_errors("no usable NVIDIA GPU"):
            self.gpu = core.Device(ordinal)
            self.gpu.set_current()
            self.stream = self.gpu.create_stream()
            major, minor = self.gpu.compute_capability
            self.name = f"cuda:{ordinal} {self.gpu.name}"
        self.arch = arch or target_of(major, minor)
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
        """Run a kernel once, to completion.

        Raises LaunchError if a limit is exceeded and DeviceError if the run fails.
        """
        prepared = self._prepare(artifact, grid, block, args, dynamic_smem, cluster)
        with driver_errors(f"running {artifact.entry} on {self.name}"):
            launched = Launched(time_s=self._timed(prepared))
        for address, image in self._variables(artifact, prepared.kernel):
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
        """Return the median GPU time of repeated launches in seconds, after a warm-up.

        Caches are warm and clocks are not locked. Takes less than 1 s for a kernel of less than
        0.1 s. Raises the errors of `launch`.
        """
        prepared = self._prepare(artifact, grid, block, args, dynamic_smem, cluster)
        with driver_errors(f"timing {artifact.entry} on {self.name}"):
            for _ in _until(_WARM_UP_S, _REPEATS):
                self._timed(prepared)
            return statistics.median([self._timed(prepared) for _ in _until(_MEASURE_S, _REPEATS)])

    @property
    def facts(self) -> Gpu:
        """The GPU's specification as reported by the driver.

        Raises UnknownNameError if the table of architectures lacks the GPU's.
        """
        properties, (major, minor) = self.gpu.properties, self.gpu.compute_capability
        arch = architecture(f"sm_{major}{minor}")
        sms, mhz = properties.multiprocessor_count, properties.clock_rate // 1000
        return Gpu(
            name=self.gpu.name,
            arch=arch.name,
            sms=sms,
            boost_mhz=mhz,
            fp32_tflops=2e-6 * sms * arch.fp32_lanes * mhz,
            # Two transfers per clock; kHz · bits / 8.
            bandwidth_gbs=2e-6
            * properties.memory_clock_rate
            * properties.global_memory_bus_width
            / 8,
            l2_mb=properties.l2_cache_size / 2**20,
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
        args: Sequence[Argument],
        dynamic_smem: int = 0,
        cluster: Dim3 | None = None,
    ) -> Callable[[], None]:
        """Check and load a kernel; each call of the returned function enqueues one launch.

        Raises LaunchError if a limit is exceeded.
        """
        prepared = self._prepare(artifact, grid, block, args, dynamic_smem, cluster)
        return lambda: self._enqueue(self.stream, prepared)

    def timed(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int = 0,
    ) -> Callable[[], float]:
        """Check and load a kernel; each call of the returned function launches it once, to
        completion, and returns its seconds. Work that was enqueued before keeps the host's time
        out of them.

        Raises LaunchError if a limit is exceeded.
        """
        prepared = self._prepare(artifact, grid, block, args, dynamic_smem)
        return lambda: self._timed(prepared)

    def clear(self, span: Span) -> None:
        """Enqueue a fill of `span` with zeros."""
        self.call_async("cuMemsetD8Async", _address(span), 0, span.nbytes, self.stream.handle)

    def copy(self, target: Span, source: Span) -> None:
        """Enqueue a copy of `target.nbytes` bytes within device memory."""
        addresses = _address(target), _address(source)
        self.call_async("cuMemcpyDtoDAsync", *addresses, target.nbytes, self.stream.handle)

    def call(self, function: str, *args: Any) -> Any:
        """Call the driver, wait for the stream, return the call's first result."""
        result = self.call_async(function, *args)
        with driver_errors(function):
            self.stream.sync()
        return result

    def call_async(self, function: str, *args: Any) -> Any:
        """Call the driver and return the call's first result, without waiting for the stream."""
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
        """Enqueue a launch on a stream; return the events before and after it.

        Raises the errors of `launch`.
        """
        prepared = self._prepare(artifact, grid, block, args, dynamic_smem)
        with driver_errors(f"launching {artifact.entry} on {self.name}"):
            return self._recorded(stream, prepared)

    @contextmanager
    def runtime(self, artifact: Artifact) -> Iterator[CudaRuntime]:
        from gemmlab.devices.flow_cuda import CudaRuntime

        with ExitStack() as resources:
            yield CudaRuntime(self, artifact, resources)

    def _prepare(
        self,
        artifact: Artifact,
        grid: Dim3,
        block: Dim3,
        args: Sequence[Argument],
        dynamic_smem: int,
        cluster: Dim3 | None = None,
    ) -> PreparedLaunch:
        """Check the launch, load the kernel and convert the arguments."""
        used = artifact.resources
        static_smem, registers = (used.static_smem_bytes, used.registers) if used else (0, 0)
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
        return PreparedLaunch(config, kernel, typed, placed)

    def _with_maps_in_memory(self, artifact: Artifact, args: Sequence[Argument]) -> list[Argument]:
        """Copy tensor maps for pointer parameters to device memory; return the new arguments."""
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
        """Return the kernel on this device, loading it on first use."""
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
        """Yield the device address and the host bytes of each of the module's variables.

        Raises DeviceError for a variable that was set from Python but that the driver cannot find.
        """
        images = artifact.variables.images
        if not images:
            return
        library = self.call_async("cuKernelGetLibrary", kernel.handle)
        module = self.call_async("cuLibraryGetModule", library)
        for symbol, image in images.items():
            error, address, _ = self._cu.cuModuleGetGlobal(module, symbol.encode())
            if error == self._cu.CUresult.CUDA_SUCCESS:
                yield int(address), image
            elif error != self._cu.CUresult.CUDA_ERROR_NOT_FOUND:
                raise DeviceError(f"variable {symbol} on {self.name}: {error.name}")
            elif symbol.encode() in (artifact.cubin or b""):  # else unused and optimized away
                artifact.variables.mark_missing(symbol, self.name)

    def _timed(self, prepared: PreparedLaunch) -> float:
        """Launch once, to completion; return the seconds between the events around the launch."""
        begin, end = self._recorded(self.stream, prepared)
        end.sync()
        return float(end - begin) / 1e3

    def _recorded(self, stream: Any, prepared: PreparedLaunch) -> tuple[Any, Any]:
        begin = stream.record(options=TIMING)
        self._enqueue(stream, prepared)
        return begin, stream.record(options=TIMING)

    def _enqueue(self, stream: Any, prepared: PreparedLaunch) -> None:
        config, kernel, args, _ = prepared
        if isinstance(config, self._core.LaunchConfig):
            self._core.launch(stream, config, kernel, *args)
        else:
            tensor_maps.launch(stream.handle, config, kernel, args)


def _address(span: Span) -> int:
    assert isinstance(span.buffer, CudaBuffer)
    return span.buffer.address + span.offset


def has_driver() -> bool:
    """Whether an NVIDIA driver is installed. Fast; does not check that the driver works."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver() -> Any:
    """Return the driver's bindings. Raises DeviceError if there is no driver or no GPU."""
    driver: Any = CUDA_BINDINGS.load()
    try:
        (error,) = driver.cuInit(0)
    except RuntimeError as missing:  # the driver's library is not found
        raise DeviceError(NO_DRIVER) from missing
    if int(error) != 0:
        raise DeviceError(f"the NVIDIA driver cannot be used: {error.name}")
    return driver


def _until(seconds: float, most: int) -> Iterator[int]:
    """Count from 0 until `seconds` have passed, at least once and at most `most` times."""
    stop = time.perf_counter() + seconds
    for i in range(most):
        yield i
        if time.perf_counter() > stop:
            return


@contextmanager
def driver_errors(doing: str) -> Iterator[None]:
    """Raise any exception as DeviceError; those of cuda.core have no public base class."""
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
    """Convert arguments to scalars of the sizes that the kernel declares; tensor maps to bytes."""
    pairs = zip(artifact.parameters, args, strict=True)
    return [_scalar(artifact.entry, i, parameter, arg) for i, (parameter, arg) in enumerate(pairs)]


def _declared(entry: str, index: int, parameter: ParameterType) -> str:
    return f"{entry}, argument {index} (.{parameter.ptx_type}, {parameter.size} bytes)"


def _encoded(declared: str, tensor_map: TensorMap) -> bytes:
    span = tensor_map.array
    if not isinstance(span, Span) or not isinstance(span.buffer, CudaBuffer):
        raise LaunchError(f"{declared}: a tensor map of {span!r}, which is not GPU memory")
    return tensor_maps.encode(tensor_map, _address(span))


def _scalar(entry: str, index: int, parameter: ParameterType, arg: Argument) -> np.generic | bytes:
    declared = _declared(entry, index, parameter)
    if isinstance(arg, TensorMap):
        if parameter.size != 128:
            raise LaunchError(f"{declared}: a tensor map needs 128 bytes")
        return _encoded(declared, arg)
    if isinstance(arg, Span):
        if not isinstance(arg.buffer, CudaBuffer) or parameter.size != 8:
            raise LaunchError(f"{declared}: cannot take {type(arg.buffer).__name__}")
        return np.uint64(_address(arg))
    if isinstance(arg, list):
        raise LaunchError(f"{declared}: a list is accepted only for a pointer to tensor maps")
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
