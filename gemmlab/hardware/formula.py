"""Integers that carry their formula, in symbols and with the numbers inserted.

>>> bm, m, k = Quantity.named("BM", 128), Quantity.named("M", 300), Quantity.named("K", 64)
>>> loads = k * (m + ceil_div(m, bm))
>>> loads.symbols, loads.numbers, loads.value
('K·(M + ⌈M/BM⌉)', '64·(300 + ⌈300/128⌉)', 19392)
"""

from __future__ import annotations

from dataclasses import dataclass

_SUM, _PRODUCT, _ATOM = 0, 1, 2  # operator precedence


@dataclass(frozen=True)
class Quantity:
    """An integer and its formula."""

    symbols: str
    numbers: str
    value: int
    binding: int = _ATOM  # precedence of the outermost operator

    @classmethod
    def named(cls, name: str, value: int) -> Quantity:
        return cls(name, str(value), value)

    @classmethod
    def of(cls, value: Quantity | int) -> Quantity:
        return value if isinstance(value, Quantity) else cls.named(str(value), value)

    def __add__(self, other: Quantity | int) -> Quantity:
        other = Quantity.of(other)
        return self._joined("{} + {}", other, self.value + other.value, _SUM)

    def __sub__(self, other: int) -> Quantity:
        return self._joined("{} - {}", Quantity.of(other), self.value - other, _SUM)

    def __mul__(self, other: Quantity | int) -> Quantity:
        other = Quantity.of(other)
        return self._joined("{}·{}", other, self.value * other.value, _PRODUCT)

    def __rmul__(self, other: int) -> Quantity:
        return Quantity.of(other) * self

    def numbers_over(self, divisor: int) -> str:
        """The formula of a quotient that need not be an integer, with the numbers inserted."""
        return f"{self._texts(_PRODUCT)[1]}/{divisor}"

    def _joined(self, text: str, other: Quantity, value: int, binding: int) -> Quantity:
        return _join(text, self._texts(binding), other._texts(binding), value, binding)

    def _texts(self, inside: int) -> Texts:
        """Return symbols and numbers as an operand of an operator with this precedence."""
        if self.binding >= inside:
            return self.symbols, self.numbers
        return f"({self.symbols})", f"({self.numbers})"


def ceil_div(above: Quantity, below: Quantity) -> Quantity:
    value = -(-above.value // below.value)
    return _join("⌈{}/{}⌉", above._texts(_PRODUCT), below._texts(_ATOM), value, _ATOM)


def least(one: Quantity, other: Quantity) -> Quantity:
    value = min(one.value, other.value)
    return _join("min({}, {})", one._texts(_SUM), other._texts(_SUM), value, _ATOM)


Texts = tuple[str, str]  # symbols and numbers


def _join(text: str, left: Texts, right: Texts, value: int, binding: int) -> Quantity:
    symbols, numbers = (text.format(*pair) for pair in zip(left, right, strict=True))
    return Quantity(symbols, numbers, value, binding)
