"""Keeps torch.compile out of a product's own code.

Dynamo traces into every Python function that it meets. In a product it would record the addresses
of the tensors that it happens to see as constants, and later calls would use freed memory. So the
public functions are opaque: under torch.compile they break the graph and run as ordinary Python.
With `fullgraph=True`, Dynamo's error gives `REASON`.

    if not dynamo.ready: dynamo.prepare()
    if dynamo.is_traced() or dynamo.callback(): return dynamo.untraced("name")(…)

An ordinary call costs about 80 ns. Dynamo traces these lines, too, except for what `prepare` and
`untraced` do the first time: it breaks the graph there, runs that, and traces from the next line.
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

ready = False  # PyTorch has been imported, and the next two functions are its own


def is_traced() -> bool:
    """Whether Dynamo traces the caller."""
    return False


def callback() -> Any:
    """What would trace the functions that the caller calls, if anything.

    Dynamo runs a function untraced if it sees no tensor among its arguments, and still traces what
    that function calls: with a packed operand, say, or for a method of `Matmul`.
    """
    return None


_functions: dict[str, Callable[..., Any]] = {}
_untraced: dict[str, Callable[..., Any]] = {}


def hide(function: Callable[P, R]) -> Callable[P, R]:
    """Register a function that begins with the two lines above, by its qualified name."""
    _functions[function.__qualname__] = function
    return function


def opaque(function: Callable[P, R]) -> Callable[P, R]:
    """The function behind those two lines. They cost more here than in the function itself."""
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
    """Take PyTorch's own `is_traced` and `callback` once it has been imported."""
    global ready, is_traced, callback
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "compiler"):  # else it may be half imported
        is_traced = torch.compiler.is_dynamo_compiling
        # NOTE: not public; torch.compiler.disable uses it as well.
        callback = torch._C._dynamo.eval_frame.get_eval_frame_callback
        ready = True


def untraced(name: str) -> Callable[..., Any]:
    """A registered function that Dynamo does not trace."""
    if name not in _untraced:
        torch = sys.modules["torch"]
        torch._dynamo.graph_break(msg=REASON)  # what `fullgraph=True` refuses, with the reason
        disable = torch.compiler.disable
        # Versions before 2.7 take no reason.
        reason = {"reason": REASON} if "reason" in inspect.signature(disable).parameters else {}
        _untraced[name] = disable(_functions[name], **reason)
    return _untraced[name]
