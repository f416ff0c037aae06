"""Run the float32 products of a PyTorch program on `gemmlab.matmul`.

`enable()` replaces the CUDA kernels of ten PyTorch operators: mm, addmm, bmm and baddbmm, each with
and without `out`, addmm_ and baddbmm_. All matrix products of PyTorch call one of them: `matmul`,
`@`, `einsum`, `linear`, `nn.Linear`, attention's math path, `cdist`, `matrix_exp`, their backward
passes, and the code that `torch.compile` generates. Convolutions stay with cuDNN; by PyTorch's
default they run in TF32, even those that are products (1×1).

Modes are no alternative. A `TorchFunctionMode` intercepts only calls from Python, so it misses
backward passes and products inside PyTorch's own functions. A `TorchDispatchMode` adds a Python
call to every operator of the program, and compiled code bypasses it. Kernels are below autograd,
autocast and vmap, which therefore work as before.

A product that gemmlab does not support, or is not predicted to speed up, runs on PyTorch's kernel.
So do all products of a program that allows TF32.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gemmlab.core.packages import TORCH
from gemmlab.errors import GemmlabError, MissingDependencyError
from gemmlab.linalg import entry
from gemmlab.linalg.planned import Saving
from gemmlab.linalg.planning.tiers import NotFaster

with TORCH.importing():
    import torch
    from torch import Tensor

_FLOAT32 = torch.float32
# NOTE: not public. They take a tenth of the time of torch.no_grad and of torch.backends.
_set_grad_enabled = torch._C._set_grad_enabled
_precision = getattr(torch._C, "_get_fp32_precision_getter", None)

OPERATORS = (
    *("mm", "mm.out", "addmm", "addmm.out", "addmm_"),
    *("bmm", "bmm.out", "baddbmm", "baddbmm.out", "baddbmm_"),
)
# At most this many are kept: pairs of shapes with slower products, forms per pair, and savings.
_MOST = 4096


@dataclass(frozen=True)
class Report:
    """The products of the program since `enable()`."""

    taken: int  # products that ran on gemmlab
    left: dict[str, int]  # the other products, by reason
    saved_s: float  # seconds of GPU time saved compared with PyTorch's float32: a prediction

    def __str__(self) -> str:
        lines = [
            f"{self.taken} products ran on gemmlab, predicted to save {self.saved_s:.3g} s of GPU "
            "time"
        ]
        lines += [f"{count} ran as before: {reason}" for reason, count in self.left.items()]
        return "\n".join(lines)


@dataclass
class _State:
    """The replaced kernels while enabled, and the counts."""

    library: Any = None
    left: Counter[str] = field(default_factory=Counter)
    # Reasons of products that are faster in PyTorch, by the factors' shapes and `_rest_of_form`.
    slower: dict[Any, dict[Any, str]] = field(default_factory=dict)
    taken: int = 0
    # What products saved: a sum, and those not yet added to it, because a prediction takes time.
    saved_s: float = 0.0
    savings: list[Saving] = field(default_factory=list)

    def take(self, saving: Saving) -> None:
        """Count a product that ran on gemmlab."""
        self.taken += 1
        self.savings.append(saving)
        if len(self.savings) >= _MOST:
            self.add_savings()

    def add_savings(self) -> None:
        with _lock:
            savings, self.savings = self.savings, []
            self.saved_s += sum(saving() for saving in savings)

    def keep_slower(self, a: Tensor, b: Tensor, reason: str) -> None:
        shapes = a.shape, b.shape
        if max(len(self.slower), len(self.slower.get(shapes, ()))) >= _MOST:
            self.slower.clear()
        self.slower.setdefault(shapes, {})[_rest_of_form(a, b)] = reason


_state = _State()
_lock = threading.Lock()


def enable() -> None:
    """Run float32 products of CUDA tensors on gemmlab if that is predicted to be faster.

    Applies to the whole process, including models that are already compiled, until `disable()`.
    Resets `report()`. Has no effect if PyTorch was built without CUDA.

    Raises:
        MissingDependencyError: PyTorch is older than 2.9.

    Examples:
        >>> gemmlab.torch.enable()
        >>> y = torch.nn.Linear(64, 64)(torch.ones(8, 64))  # not a CUDA tensor: PyTorch's kernel
        >>> gemmlab.torch.report().taken
        0
        >>> gemmlab.torch.disable()
    """
    _enable("CUDA", OPERATORS if torch.version.cuda else ())


def disable() -> None:
    """Restore PyTorch's own kernels. Has no effect unless enabled."""
    with _lock:
        if _state.library is not None:
            _state.library._destroy()
            _state.library = None


@contextmanager
def enabled() -> Iterator[None]:
    """Enable within a `with` block, in all threads; then restore the previous state.

    Raises:
        MissingDependencyError: PyTorch is older than 2.9.
    """
    was_on = _state.library is not None
    if not was_on:
        enable()
    try:
        yield
    finally:
        if not was_on:
            disable()


def report() -> Report:
    """Return a report on the products since `enable()`."""
    left = dict(_state.left.most_common())
    _state.add_savings()
    return Report(_state.taken, left, _state.saved_s)


def _enable(key: str, operators: tuple[str, ...] = OPERATORS) -> None:
    """Replace the kernels of one dispatch key: "CUDA", or "CPU" in tests."""
    global _state
    if not hasattr(torch.library, "get_kernel"):
        raise MissingDependencyError(
            f"PyTorch {torch.__version__} lacks torch.library.get_kernel, which gemmlab.torch "
            "needs to call PyTorch's own kernels; run: pip install 'torch>=2.9'"
        )
    with _lock:
        if _state.library is not None:
            return
        library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
            for name in operators:
                own = torch.library.get_kernel(f"aten::{name}", key)
                library.impl(name, _kernel(name, own), key, with_keyset=True)
        _state = _State(library)


def _kernel(name: str, own: Any) -> Callable[..., Tensor]:
    """Return the kernel that replaces PyTorch's `own` kernel of an operator.

    Its `args` end with the two factors; before them is what addmm and baddbmm add. If the operator
    works in place, that one receives the result.
    """
    in_place, rank = name.endswith("_"), 3 if "bmm" in name else 2
    multiply = _sum_product if "add" in name else _product

    def run(keys: Any, *args: Tensor, **options: Any) -> Tensor:
        a, b = args[-2:]
        out = args[0] if in_place else options.get("out")
        shapes = a.shape, b.shape
        if (reason := _obstacle(b, *shapes, rank, out)) is None:
            # Most shapes have no slower products, so their strides need not be looked at.
            slower = _state.slower.get(shapes)
            reason = None if slower is None else slower.get(_rest_of_form(a, b))
        if reason is None:
            if records := torch.is_grad_enabled():
                _set_grad_enabled(False)  # autograd has recorded the operator already
            try:
                result, saving = multiply(args, out, options)
            except NotFaster as error:
                reason = str(error)
                _state.keep_slower(a, b, reason)
            except GemmlabError as error:
                reason = str(error).splitlines()[0]
            else:
                _state.take(saving)
                return result
            finally:
                if records:
                    _set_grad_enabled(True)
        _state.left[reason] += 1
        return own.call_boxed(keys, *args, **options)

    return run


def _product(
    args: tuple[Tensor, ...], out: Tensor | None, _options: dict[str, Any]
) -> tuple[Tensor, Saving]:
    return entry.faster(*args, out=out)


def _sum_product(
    args: tuple[Tensor, ...], out: Tensor | None, options: dict[str, Any]
) -> tuple[Tensor, Saving]:
    c, a, b = args
    alpha, beta = options.get("alpha", 1), options.get("beta", 1)
    return entry.faster(a, b, c, out=out, alpha=alpha, beta=beta)


def _rest_of_form(a: Tensor, b: Tensor) -> tuple[Any, ...]:
    """What the prediction depends on besides the shapes."""
    return a.stride(), b.stride(), a.get_device()


def _obstacle(
    b: Tensor, shape: torch.Size, other: torch.Size, rank: int, out: Tensor | None
) -> str | None:
    """Return why gemmlab cannot compute a product, or None.

    What PyTorch's own kernel also refuses is left to gemmlab's checks, unless it broadcasts.
    """
    if b.dtype is not _FLOAT32:
        return "not float32"
    if _allows_tf32():
        return "the program allows TF32"
    if (
        not len(shape) == len(other) == rank
        or shape[-1] != other[-2]
        or (rank == 3 and shape[0] != other[0])
    ):
        return "incompatible shapes"
    if out is not None:
        # A slice of a torch.Size would take as long as all that precedes.
        *rows, _ = shape
        if out.shape != (*rows, other[-1]):
            return "out has another shape"  # PyTorch resizes it
    return None


def _allows_tf32() -> bool:
    if _precision is None:
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
    return bool(_precision("cuda", "matmul") == "tf32")
