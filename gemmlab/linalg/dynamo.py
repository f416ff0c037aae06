"""Keep torch.compile from tracing the library's own code.

Dynamo traces every Python function that it encounters. Inside a product it would record tensor
addresses as constants, and later calls would use freed memory. The public functions are therefore
opaque: under torch.compile they break the graph and run as ordinary Python. With `fullgraph=True`,
Dynamo's error shows `REASON`.

    if not dynamo.ready: dynamo.prepare()
    if dynamo.is_traced() or dynamo.callback(): return dynamo.untraced("name")(…)

These lines cost an ordinary call about 80 ns. Dynamo traces them, too, except for the first calls
of `prepare` and `untraced`: there it breaks the graph, runs the call, and resumes on the next line.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

REASON = "gemmlab's products are not traced; they run as they are, between compiled graphs"

ready = False  # PyTorch is imported, and the next two functions are replaced by its own
# Traced code must not look into `sys.modules`: Dynamo would iterate over it, and other threads may
# import modules meanwhile.
_torch: Any = None


def is_traced() -> bool:
    """Whether Dynamo traces the caller."""
    return False


def callback() -> Any:
    """Return Dynamo's callback if it would trace functions that the caller calls.

    Dynamo does not trace a function without tensors among its arguments, e.g. with a packed operand
    or a method of `Matmul`, but it still traces the functions that it calls.
    """
    return None


_functions: dict[str, Callable[..., Any]] = {}
_untraced: dict[str, Callable[..., Any]] = {}


def hide(function: Callable[P, R]) -> Callable[P, R]:
    """Register a function that begins with the two lines above, under its qualified name."""
    _functions[function.__qualname__] = function
    return function


def opaque(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function in those two lines; this costs more than lines in the function itself."""
    name = hide(function).__qualname__

    @wraps(function)
    def entry(*args: P.args, **kwargs: P.kwargs) -> R:
        if not ready:
            prepare()
        if is_traced() or callback():
            result: R = untraced(name)(*args, **kwargs)
            return result
        return function(*args, **kwargs)

    return entry


def prepare() -> None:
    """Replace `is_traced` and `callback` by PyTorch's functions, if PyTorch is imported."""
    global ready, is_traced, callback, _torch
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "compiler"):  # else PyTorch is absent or still being imported
        is_traced = torch.compiler.is_dynamo_compiling
        # NOTE: not public; torch.compiler.disable uses it as well.
        callback = torch._C._dynamo.eval_frame.get_eval_frame_callback
        _torch, ready = torch, True


# If the first call of a process is traced, Dynamo calls `prepare` instead of tracing it.
# NOTE: what torch.compiler.assume_constant_result sets; PyTorch may not be imported yet.
prepare._dynamo_marked_constant = True  # type: ignore[attr-defined]


def are_tensors(*operands: Any) -> bool:
    """Whether all operands of a traced call are PyTorch tensors; None stands for no operand."""
    return all(x is None or isinstance(x, _torch.Tensor) for x in operands)


def untraced(name: str) -> Callable[..., Any]:
    """Return a registered function, wrapped so that Dynamo does not trace it."""
    if name not in _untraced:
        _torch._dynamo.graph_break(msg=REASON)  # an error under `fullgraph=True`, with the reason
        disable = _torch.compiler.disable
        # Versions before 2.7 have no parameter `reason`.
        reason = {"reason": REASON} if "reason" in inspect.signature(disable).parameters else {}
        _untraced[name] = disable(_functions[name], **reason)
    return _untraced[name]
