"""Numbers as a reader wants them: three digits, a prefix, a unit."""

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")  # of the SI, powers of 1000


def scaled(value: float) -> str:
    """Three digits and a decimal prefix of the SI: 16.8M, 8.8P."""
    for prefix in _PREFIXES:
        if abs(float(f"{value:.3g}")) < 1000:
            return f"{value:.3g}{prefix}"
        value /= 1000
    return f"{value:.3g}e3{_PREFIXES[-1]}"


def seconds(value: float) -> str:
    """Three digits and a unit: 58µs; whole seconds from 1000 on."""
    for factor, unit in ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms")):
        if float(f"{value / factor:.3g}") < 1000:
            return f"{value / factor:.3g}{unit}"
    return f"{digits(value)}s"


def percent(value: float) -> str:
    return f"{value:.0f}%"


def digits(value: float) -> str:
    """Three digits; all digits of the whole number from 1000 on."""
    return f"{value:.3g}" if abs(float(f"{value:.3g}")) < 1000 else f"{value:,.0f}"
