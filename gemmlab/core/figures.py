"""Format numbers for readers: three digits, an SI prefix, a unit."""

from collections.abc import Mapping

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")  # SI, powers of 1000


def scaled(value: float) -> str:
    """Format with three digits and an SI prefix: 16.8M, 8.8P."""
    for prefix in _PREFIXES:
        if abs(float(f"{value:.3g}")) < 1000:
            return f"{value:.3g}{prefix}"
        value /= 1000
    return f"{value:.3g}e3{_PREFIXES[-1]}"


def seconds(value: float) -> str:
    """Format seconds with three digits and a unit, e.g. 58µs; whole seconds from 1000 s on."""
    for factor, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")):
        if float(f"{value / factor:.3g}") < 1000:
            return f"{value / factor:.3g}{unit}"
    return f"{digits(value)}s"


def percent(value: float) -> str:
    return f"{value:.0f}%"


def digits(value: float) -> str:
    """Format with three digits; from 1000 on, as a whole number with all its digits."""
    return f"{value:.3g}" if abs(float(f"{value:.3g}")) < 1000 else f"{value:,.0f}"


def times(shape: Mapping[str, int]) -> str:
    """Format a shape, e.g. "512×512×64"."""
    return "×".join(map(str, shape.values()))
