"""A predicted time as text."""

from __future__ import annotations

from typing import Any

from gemmlab.core.figures import seconds
from gemmlab.timing import Model, Prediction

NOTE = (
    "Predicted from the machine code and the emulator, with empty caches at the start, as `gemmlab "
    "bench` measures. `gemmlab docs predicting` has the model and its error."
)
_LEAST = 0.02  # smaller shares are left out
_LINES = 5


def device(model: Model) -> str:
    """The GPU that the model describes."""
    gpu, sms, clock = model.gpu.name, model.parameters.sms, model.parameters.clock_ghz
    return f"predicted for {gpu}, {sms} SMs at {clock:g} GHz"


def facts(found: Prediction, model: Model) -> dict[str, str]:
    """The prediction as named facts."""
    result = {"time": seconds(found.time_s)}
    if model.interval:
        low, high = (seconds(found.time_s * x) for x in model.interval)
        result["four times in five"] = f"{low} to {high}"
    else:
        result["error"] = "unknown: no time on this GPU was compared with a prediction"
    result["limited by"] = found.limiter
    result |= {f"busy: {name}": f"{share:.0%}" for name, share in found.busy.items()}
    stalls = sorted(found.stalls.items(), key=lambda item: -item[1])
    result |= {f"warps: {name}": f"{share:.0%}" for name, share in stalls if share >= _LEAST}
    lines = [(at, x) for at, x in found.by_source_line().items() if at and x >= _LEAST]
    result |= {f"line {at}": f"{share:.0%}" for at, share in lines[:_LINES]}
    return result


def as_json(found: Prediction, model: Model) -> dict[str, Any]:
    """The prediction as data. Shares are of 1."""
    bounds = model.interval
    return {
        "gpu": model.gpu.name,
        "sms": model.parameters.sms,
        "clock_ghz": model.parameters.clock_ghz,
        "is_proven": model.is_proven,
        "time_s": found.time_s,
        "interval_s": [found.time_s * x for x in bounds] if bounds else None,
        "limiter": found.limiter,
        "busy": dict(found.busy),
        "stalls": dict(found.stalls),
        "source_lines": found.by_source_line(),
    }
