"""A product that is planned once and run many times."""

from __future__ import annotations

from typing import Any

from gemmlab.errors import InputError, ShapeError, StateError
from gemmlab.linalg import api, dynamo, frameworks, operands, recent
from gemmlab.linalg.planned import Plan, Report


class Matmul:
    """alpha·a·b + beta·c for the same arrays, or others like them, again and again.

        with gemmlab.Matmul(a, b, out=c) as product:
            product.plan()
            for _ in range(1000):
                product.execute()

    Arguments are those of `gemmlab.matmul`, and so are the errors. `plan` checks them, chooses the
    tier and compiles; `execute` enqueues on the stream that is current then, or on `stream`: what a
    CUDA graph records, too. One thread at a time may use it. Arrays are kept until `free`; where
    their memory is, is found out by `plan` and `reset_operands`, so it must not move after that.
    """

    @dynamo.opaque
    def __init__(
        self,
        a: Any,
        b: Any,
        /,
        c: Any = None,
        *,
        out: Any = None,
        alpha: float | None = None,
        beta: float | None = None,
        precision: str | None = None,
        stream: Any = None,
    ) -> None:
        self._arrays = {"a": a, "b": b, "c": c, "out": out}
        self._scalars = operands.check_given(b, c, alpha, beta)
        self._options: dict[str, Any] = {"alpha": alpha, "beta": beta, "precision": precision}
        self._stream, self._freed = stream, False
        self._on_host = frameworks.is_on_host(a, "a")
        self._bound: Any = None
        self._plan: Plan | None = None

    @dynamo.opaque
    def plan(self) -> Plan:
        """Check the arrays, choose the tier, compile; the second time, the same plan."""
        self._check_alive()
        if self._plan is None and self._on_host:
            self._plan = api.HostProduct(self._given(), self._options["precision"]).plan
        elif self._plan is None:
            self._bind()
        assert self._plan is not None
        return self._plan

    @dynamo.hide
    def execute(self) -> Any:
        """Enqueue the product. Returns `out`, or a new array each time."""
        if not dynamo.ready:
            dynamo.prepare()
        if dynamo.is_traced() or dynamo.callback():
            return dynamo.untraced("Matmul.execute")(self)
        if self._plan is None:
            self._check_alive()
            raise StateError("Matmul.execute before Matmul.plan")
        if self._bound is None:
            a, b, c, out = self._arrays.values()
            return api.matmul(a, b, c, out=out, **self._options)
        if not self._bound.is_current():
            self._bind()
        result = self._bound.run()
        recent.remember(self._plan)
        return result

    @dynamo.opaque
    def reset_operands(self, a: Any = None, b: Any = None, c: Any = None, out: Any = None) -> None:
        """Take other arrays of the same shapes, strides and device from now on.

        Raises ShapeError for arrays that the plan does not fit, InputError for one in place of
        None; the old ones stay then.
        """
        self.plan()
        changed = {"a": a, "b": b, "c": c, "out": out}
        changed = {name: array for name, array in changed.items() if array is not None}
        for name, array in changed.items():
            if self._arrays[name] is None:
                raise InputError(f"the product was planned without {name}")
            frameworks.is_on_host(array, name)  # raises DTypeError for what is no array
        other = Matmul(
            *({**self._arrays, **changed}[name] for name in ("a", "b", "c")),
            out=changed.get("out", self._arrays["out"]),
            **self._options,
            stream=self._stream,
        )
        for name, array in changed.items():
            old, new = (_form(x) for x in (self._arrays[name], array))
            if old != new:
                raise ShapeError(f"{name} is {new}, the product was planned for {old}")
        other.plan()
        self._arrays, self._bound, self._plan = other._arrays, other._bound, other._plan

    @dynamo.opaque
    def ran(self) -> Report:
        """Which tier ran the last time, and why. Waits for the GPU."""
        return self.plan().report()

    @dynamo.opaque
    def free(self) -> None:
        """Let go of the arrays. The object cannot be used any more."""
        self._freed = True
        self._arrays = dict.fromkeys(self._arrays)
        self._bound = self._plan = None

    def __enter__(self) -> Matmul:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def _bind(self) -> None:
        """Plan for the stream that is current, unless one is given."""
        from gemmlab.linalg import calls

        a, b, c, out = self._arrays.values()
        precision = self._options["precision"]
        self._bound = calls.Bound(a, b, c, out, self._scalars, precision, self._stream)
        self._plan = self._bound.call.plan

    def _given(self) -> dict[str, Any]:
        return {name: array for name, array in self._arrays.items() if array is not None}

    def _check_alive(self) -> None:
        if self._freed:
            raise StateError("this Matmul has been freed")


def _form(array: Any) -> str:
    """Kind, type, shape, strides and device, in words."""
    strides = array.stride() if callable(getattr(array, "stride", None)) else None
    strides = getattr(array, "strides", strides)
    place = getattr(array, "device", "unknown")
    shape, dtype = (getattr(array, name, "unknown") for name in ("shape", "dtype"))
    kind = f"{type(array).__name__} of {dtype}"
    return f"{kind}, shape {shape}, strides {strides}, on device {place}"
