"""A product that is planned once and run many times."""

from __future__ import annotations

from typing import Any

from gemmlab.errors import InputError, ShapeError, StateError
from gemmlab.linalg import dynamo, entry, frameworks, operands, recent
from gemmlab.linalg.planned import ProductPlan, Report


class Matmul:
    """A product alpha·a·b + beta·c that is planned once and run many times.

    Arguments and errors are those of `gemmlab.matmul`. The object keeps the arrays until `free`, or
    until the end of a `with` block. `plan` and `reset_operands` read their addresses, so their
    memory must not move afterwards. Only one thread at a time may use the object.

    Examples:
        >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
        >>> c = np.empty((2, 2), np.float32)
        >>> with gemmlab.Matmul(a, b, out=c) as product:
        ...     plan = product.plan()
        ...     for _ in range(1000):
        ...         _ = product.execute()
        >>> c
        array([[3., 3.],
               [3., 3.]], dtype=float32)
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
        self._scalars = operands.check_scalars(b, c, alpha, beta)
        self._options: dict[str, Any] = {"alpha": alpha, "beta": beta, "precision": precision}
        self._stream, self._freed = stream, False
        frameworks.locate(a, "a")  # raises DTypeError unless it is an array
        self._product: Any = None

    @dynamo.opaque
    def plan(self) -> ProductPlan:
        """Check the operands, choose the precision and compile. Later calls return the same plan.

        Raises:
            GemmlabError: an error of `gemmlab.matmul`.
            StateError: after `free`.
        """
        self._check_alive()
        if self._product is None:
            self._bind()
        plan: ProductPlan = self._product.plan
        return plan

    @dynamo.hide
    def execute(self) -> Any:
        """Enqueue the product on `stream`, or on the stream that is current at this call.

        A CUDA graph can record it.

        Returns:
            `out`, or a new array each time.

        Raises:
            StateError: before `plan` or after `free`.
        """
        if not dynamo.ready:
            dynamo.prepare()
        if dynamo.is_traced() or dynamo.callback():
            return dynamo.untraced("Matmul.execute")(self)
        if self._product is None:
            self._check_alive()
            raise StateError("Matmul.execute before Matmul.plan")
        if not self._product.is_current():
            self._bind()
        result = self._product.run()
        recent.remember(self._product.planned)
        return result

    @dynamo.opaque
    def reset_operands(self, a: Any = None, b: Any = None, c: Any = None, out: Any = None) -> None:
        """Replace operands by other arrays of the same shapes, strides and device.

        Args:
            a: replaces `a`; None keeps it.
            b: replaces `b`; None keeps it.
            c: replaces `c`; None keeps it.
            out: replaces `out`; None keeps it.

        Raises:
            ShapeError: an array does not fit the plan.
            InputError: the product was planned without this operand.

        If it raises, the old arrays remain in use.
        """
        self.plan()
        changed = {"a": a, "b": b, "c": c, "out": out}
        changed = {name: array for name, array in changed.items() if array is not None}
        for name, array in changed.items():
            if self._arrays[name] is None:
                raise InputError(f"the product was planned without {name}")
            frameworks.locate(array, name)  # raises DTypeError unless it is an array
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
        self._arrays, self._product = other._arrays, other._product

    @dynamo.opaque
    def ran(self) -> Report:
        """Return which tier ran last, and why. Waits for the GPU."""
        return self.plan().report()

    @dynamo.opaque
    def free(self) -> None:
        """Release the arrays. The object cannot be used afterwards."""
        self._freed = True
        self._arrays = dict.fromkeys(self._arrays)
        self._product = None

    def __enter__(self) -> Matmul:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def _bind(self) -> None:
        """Plan for the given stream, or else for the current one."""
        a, b, c, out = self._arrays.values()
        precision = self._options["precision"]
        self._product = entry.bind((a, b, c, out), self._scalars, precision, self._stream)

    def _check_alive(self) -> None:
        if self._freed:
            raise StateError("this Matmul has been freed")


def _form(array: Any) -> str:
    """Describe an array for a message: type, dtype, shape, strides and device."""
    strides = array.stride() if callable(getattr(array, "stride", None)) else None
    strides = getattr(array, "strides", strides)
    place = getattr(array, "device", "unknown")
    shape, dtype = (getattr(array, name, "unknown") for name in ("shape", "dtype"))
    kind = f"{type(array).__name__} of {dtype}"
    return f"{kind}, shape {shape}, strides {strides}, on device {place}"
