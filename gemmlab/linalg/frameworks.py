"""The arrays of PyTorch and CuPy: what they are, and memory from their own allocators.

An array of another library that speaks DLPack is taken as an array of whichever of the two is
installed, without a copy; a result goes back the same way. DLPack orders the streams.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, Protocol

from gemmlab.errors import ArrayError, DTypeError, MissingDependencyError
from gemmlab.linalg.shapes import contiguous

HOST = -1  # in place of a GPU's number
_CPU = 1  # kDLCPU, of dlpack.h
DEFAULT_STREAMS = (0, 1)  # NULL and cudaStreamLegacy: two handles of one stream
_ITEM = 4  # bytes of a float32


class Facts(NamedTuple):
    """What a product depends on of an array; strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    device: int

    @property
    def is_float32(self) -> bool:
        return str(self.dtype).removeprefix("torch.") == "float32"


Form = tuple[Any, ...]  # of an array: all of its facts but the address; hashable, device last


class Framework(Protocol):
    """A library of arrays on GPUs."""

    name: str
    from_dlpack: Callable[[Any], Any]

    def form(self, array: Any) -> Form:
        """Equal for arrays whose facts differ in the address alone. Found at every call: quickly.

        Raises ArrayError for what no product takes.
        """

    def address(self, array: Any) -> int: ...

    def alike(self, array: Any, shaped: bool = True) -> Callable[[Any], bool]:
        """What tells quickly whether another array has the type and form of this one.

        It keeps no array. Unless `shaped`, it is asked of arrays of the same shape alone.
        """

    def facts(self, array: Any) -> Facts:
        """Raises ArrayError, as `form` does."""

    def is_on_host(self, array: Any) -> bool: ...

    def has_gpu(self) -> bool:
        """Whether it was built for GPUs, and finds one."""

    def check_kind(self, kind: type) -> None:
        """Raises ArrayError for a type whose arrays have no memory of their own."""

    def stream(self, device: int) -> int:
        """The handle of the current stream."""

    def entered(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        """The GPU made current, and the stream where one is given."""

    def maker(
        self, shape: tuple[int, ...], device: int, stream: int | None = None
    ) -> Callable[[], Any]:
        """What makes float32 arrays without values, on that or the current stream of the current
        GPU."""

    def copied(self, array: Any, shape: tuple[int, ...]) -> Any:
        """A contiguous copy of the array broadcast to `shape`."""

    def assign(self, target: Any, source: Any) -> None: ...

    def scale(self, target: Any, factor: float) -> None:
        """target *= factor; 0 leaves zeros whatever was there."""


class Torch:
    name = "torch"

    def __init__(self) -> None:
        self._torch = importlib.import_module("torch")
        self.from_dlpack = self._torch.from_dlpack
        self._grad, self._float32 = self._torch.is_grad_enabled, self._torch.float32
        self._strided, self._cuda = self._torch.strided, self._torch.cuda
        self.address = self._torch.Tensor.data_ptr
        self._object_of = lru_cache(256)(self._stream_of)
        # NOTE: not public. What torch.compile writes calls them; they take a third of the time that
        # torch.cuda.current_stream, torch.empty and a look at each property of a tensor do, and a
        # tenth of torch.cuda.stream's.
        own = self._torch._C
        self.stream = getattr(own, "_cuda_getCurrentRawStream", None) or self._handle
        self._get_stream = getattr(own, "_cuda_getCurrentStream", None)
        self._set_stream = self._get_stream and getattr(own, "_cuda_setStream", None)
        guards = getattr(getattr(own, "_dynamo", None), "guards", None)
        self._empty_strided = getattr(guards, "_empty_strided_cuda", None)
        self._guards: Any = getattr(guards, "TensorGuards", None)

    def form(self, array: Any) -> Form:
        if array.requires_grad and self._grad():
            raise ArrayError(
                f"a tensor of shape {tuple(array.shape)} that requires grad, and gemmlab.matmul "
                "has no derivative: give tensor.detach(), or call it under torch.no_grad()"
            )
        if array.layout is not self._strided:
            raise ArrayError(
                f"a tensor of shape {tuple(array.shape)} and layout {array.layout}: only strided "
                "ones are taken"
            )
        if array.is_neg():
            raise ArrayError(
                f"a tensor of shape {tuple(array.shape)}, the negative of what its memory holds: "
                "give tensor.resolve_neg()"
            )
        device = array.get_device()
        if device == HOST and array.device.type != "cpu":
            raise ArrayError(
                f"a tensor of shape {tuple(array.shape)} on device {array.device}; only CPUs and "
                "CUDA GPUs are taken"
            )
        try:
            has_memory = bool(array.data_ptr()) or not array.numel()
        except RuntimeError:  # inside torch.func's transforms tensors stand for others
            has_memory = False
        if not has_memory:
            raise ArrayError(f"a tensor of shape {tuple(array.shape)}, without memory of its own")
        return array.shape, array.stride(), array.dtype, device

    def alike(self, array: Any, shaped: bool = True) -> Callable[[Any], bool]:
        try:
            guards = self._guards(array, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        except TypeError:  # there are none, or ones of another version
            return alike_by(self.form, array)
        # They compare the dispatch keys too: the layout, the bit of a negative, inference mode.
        check = guards.check
        if not array.requires_grad:
            return check  # type: ignore[no-any-return]
        return lambda other: check(other) and not self._grad()

    def facts(self, array: Any) -> Facts:
        return Facts(array.data_ptr(), *self.form(array))

    def is_on_host(self, array: Any) -> bool:
        return not array.is_cuda and array.device.type == "cpu"

    def has_gpu(self) -> bool:
        return bool(self._cuda.is_available())

    def check_kind(self, kind: type) -> None:
        # Tensors that wrap others, such as DTensor, give 0 as the address of their elements.
        if getattr(kind, "__torch_dispatch__", None) is not self._torch.Tensor.__torch_dispatch__:
            rule = "such tensors wrap others: give those, as by to_local()"
            raise ArrayError(f"a {kind.__name__}, which has its own __torch_dispatch__: {rule}")

    def _handle(self, device: int) -> int:
        return int(self._cuda.current_stream(device).cuda_stream)

    def entered(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        is_current = self._cuda.current_device() == device
        if stream is None:
            return nullcontext() if is_current else _context(self._cuda.device(device))
        entered = self._object_of(stream, device)
        if is_current and self._set_stream is not None:
            return _OnStream(self._get_stream, self._set_stream, entered)
        return _context(self._cuda.stream(entered))

    def _stream_of(self, handle: int, device: int) -> Any:
        if handle in DEFAULT_STREAMS:
            # NOTE: to many versions of PyTorch ExternalStream(0) is a new stream of their pool.
            return self._cuda.default_stream(device)
        return self._cuda.ExternalStream(handle, device)

    def maker(
        self, shape: tuple[int, ...], device: int, stream: int | None = None
    ) -> Callable[[], Any]:
        make = partial(self._torch.empty, shape, dtype=self._float32, device=device)
        if self._empty_strided is not None:  # on the current GPU, as `device` is
            make = partial(self._empty_strided, shape, contiguous(shape), self._float32)
        if stream is None:
            return make
        entered = self._object_of(stream, device)
        if self._set_stream is None:
            return _within(lambda: self._cuda.stream(entered), make)
        return _on_stream(self._get_stream, self._set_stream, entered, make)

    def copied(self, array: Any, shape: tuple[int, ...]) -> Any:
        copy = self.maker(shape, array.get_device())()
        copy.copy_(array)
        return copy

    def assign(self, target: Any, source: Any) -> None:
        target.copy_(source)

    def scale(self, target: Any, factor: float) -> None:
        if factor:
            target.mul_(factor)
        else:
            target.zero_()


def _on_stream(get: Any, set_: Any, stream: Any, make: Callable[[], Any]) -> Callable[[], Any]:
    """As `_OnStream` around `make`, at a third of its cost."""
    number, device, kind = stream.stream_id, stream.device_index, stream.device_type

    def there() -> Any:
        before, index, kind_before = get(device)
        set_(stream_id=number, device_index=device, device_type=kind)
        try:
            return make()
        finally:
            set_(stream_id=before, device_index=index, device_type=kind_before)

    return there


class _OnStream(AbstractContextManager[None]):
    """A stream of the current GPU made PyTorch's current one."""

    def __init__(self, get: Any, set_: Any, stream: Any) -> None:
        self._get, self._set, self._stream = get, set_, stream

    def __enter__(self) -> None:
        stream = self._stream
        self._before = self._get(stream.device_index)
        self._enter(stream.stream_id, stream.device_index, stream.device_type)

    def __exit__(self, *_: object) -> None:
        self._enter(*self._before)

    def _enter(self, number: int, device: int, kind: int) -> None:
        self._set(stream_id=number, device_index=device, device_type=kind)


class CuPy:
    name = "cupy"

    def __init__(self) -> None:
        self._cupy = importlib.import_module("cupy")
        self.from_dlpack = self._cupy.from_dlpack
        self._cuda = self._cupy.cuda
        self._current_stream = self._cuda.get_current_stream
        self._object_of = lru_cache(256)(self._stream_of)

    def form(self, array: Any) -> Form:
        return array.shape, array.strides, array.dtype, array.data.device_id

    def address(self, array: Any) -> int:
        return array.data.ptr  # type: ignore[no-any-return]

    def alike(self, array: Any, shaped: bool = True) -> Callable[[Any], bool]:
        # As `alike_by`, but stops at what differs first and makes no form of the other.
        kind, (shape, strides, dtype, device) = type(array), self.form(array)

        def looks_alike(other: Any) -> bool:
            return (
                type(other) is kind
                and other.strides == strides
                and (other.dtype is dtype or other.dtype == dtype)
                and other.data.device_id == device
            )

        return (lambda x: looks_alike(x) and x.shape == shape) if shaped else looks_alike

    def facts(self, array: Any) -> Facts:
        shape, strides, dtype, device = self.form(array)
        if any(stride % _ITEM for stride in strides):
            rule = f"no multiples of {_ITEM} bytes"
            raise ArrayError(f"an array of shape {shape} and strides {strides}: {rule}")
        steps = tuple(stride // _ITEM for stride in strides)
        return Facts(array.data.ptr, shape, steps, dtype, device)

    def is_on_host(self, array: Any) -> bool:
        return False

    def has_gpu(self) -> bool:
        return bool(self._cuda.is_available())

    def check_kind(self, kind: type) -> None:
        """All of its arrays have memory."""

    def stream(self, device: int) -> int:
        return self._current_stream(device).ptr  # type: ignore[no-any-return]

    def entered(self, device: int, stream: int | None) -> AbstractContextManager[Any]:
        if stream is not None:
            return _context(self._object_of(stream, device))
        if self._cuda.runtime.getDevice() == device:
            return nullcontext()
        return _context(self._cuda.Device(device))

    def maker(
        self, shape: tuple[int, ...], device: int, stream: int | None = None
    ) -> Callable[[], Any]:
        make = partial(self._cupy.ndarray, shape, self._cupy.float32)
        if stream is None:
            return make
        entered = self._object_of(stream, device)
        return _within(lambda: entered, make)

    def _stream_of(self, handle: int, device: int) -> Any:
        # NOTE: deprecated by CuPy 14, whose Stream.from_external destroys the caller's stream.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._cuda.ExternalStream(handle, device)

    def copied(self, array: Any, shape: tuple[int, ...]) -> Any:
        copy = self.maker(shape, array.device.id)()
        copy[...] = array
        return copy

    def assign(self, target: Any, source: Any) -> None:
        target[...] = source

    def scale(self, target: Any, factor: float) -> None:
        if factor:
            target *= factor
        else:
            target.fill(0)


def alike_by(form: Callable[[Any], Form], array: Any) -> Callable[[Any], bool]:
    """As `Framework.alike`, by the forms."""
    kind, known = type(array), form(array)

    def alike(other: Any) -> bool:
        try:
            return type(other) is kind and form(other) == known
        except ArrayError:
            return False

    return alike


_FRAMEWORKS: dict[str, Callable[[], Framework]] = {"torch": Torch, "cupy": CuPy}
_ARRAYS = {"torch": "Tensor", "cupy": "ndarray"}  # the type that all others derive from


def find(array: Any) -> Framework | None:
    """The framework that an array belongs to; None for all other arrays.

    Raises ArrayError for arrays of a framework that have no memory of their own.
    """
    kind = type(array)
    if kind not in _found:
        name = _owner(kind)
        owner = None if name is None else framework(name)
        if owner is not None:
            owner.check_kind(kind)
        _found[kind] = owner
    return _found[kind]


@cache
def framework(name: str) -> Framework:
    return _FRAMEWORKS[name]()


@cache
def carrier() -> Framework:
    """The framework that carries arrays of other libraries."""
    for name in _FRAMEWORKS:
        try:
            found = framework(name)
        except ImportError:
            continue
        if found.has_gpu():
            return found
    raise MissingDependencyError(
        "arrays of other libraries on a GPU are carried by PyTorch or CuPy, and neither is "
        "installed with support for GPUs; run: pip install cupy-cuda13x"
    )


def is_on_host(array: Any, name: str) -> bool:
    """Whether an array lies in the host's memory.

    Raises DTypeError for what is no array, ArrayError for one that is in no single place.
    """
    try:
        framework = find(array)
    except ArrayError as error:
        raise ArrayError(f"{name} is {error}") from None
    if framework is not None:
        return framework.is_on_host(array)
    where = getattr(array, "__dlpack_device__", None)
    if where is None:
        rule = "arrays are those of PyTorch, CuPy, NumPy and what else has __dlpack_device__"
        raise DTypeError(f"{name} is a {type(array).__name__}; {rule}")
    try:
        device, _ = where()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayError(f"{name} does not say where it is through DLPack: {error}") from error
    return bool(device == _CPU)


def are_tensors(*operands: Any) -> bool:
    """Whether the operands are PyTorch's tensors; None may stand in for one that was not given."""
    torch = sys.modules.get("torch")
    return torch is not None and all(x is None or isinstance(x, torch.Tensor) for x in operands)


def are_transformed(*operands: Any) -> bool:
    """Whether autograd or torch.func wants to know of a product of these operands."""
    if not are_tensors(*operands):
        return False
    torch = sys.modules["torch"]
    given = [x for x in operands if x is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        return True
    return any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in given)


def check_form(framework: Framework, array: Any, name: str) -> Form:
    """As `Framework.form`; the error names the operand."""
    try:
        return framework.form(array)
    except ArrayError as error:
        raise ArrayError(f"{name} is {error}") from None


def stream_handle(stream: Any) -> int:
    """A stream's handle: of a number, of PyTorch, of CuPy, or of what has __cuda_stream__."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int(protocol()[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise DTypeError(
        f"stream is {stream!r}; it must be a handle (int) or an object with __cuda_stream__"
    )


_found: dict[type, Framework | None] = {}


def _owner(kind: type) -> str | None:
    """The framework whose arrays a type is, or derives from."""
    names = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return next((name for name, array in names if _ARRAYS.get(name) == array), None)


def _within(context: Callable[[], Any], make: Callable[[], Any]) -> Callable[[], Any]:
    """As `make`, each time within a context that is made anew: threads may share the result."""

    def there() -> Any:
        with context():
            return make()

    return there


def _context(manager: Any) -> AbstractContextManager[Any]:
    return manager  # type: ignore[no-any-return]
