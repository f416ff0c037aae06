"""A predicted time as text."""

from __future__ import annotations

from collections.abc import Sequence

from gemmlab.core.figures import seconds
from gemmlab.lab.records import Record
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
    changed = "".join(f", {name.replace('-', ' ')}" for name in model.what_if)
    return f"predicted for {gpu}, {sms} SMs at {clock:g} GHz{changed}"


def summary(found: Prediction, model: Model) -> dict[str, str]:
    """The time, how far it may be off, and what limits it."""
    result = {"time": seconds(found.time_s)}
    if model.interval:
        low, high = (seconds(found.time_s * x) for x in model.interval)
        result["four times in five"] = f"{low} to {high}"
    else:
        result["error"] = "unknown: no time on such a GPU was compared with a prediction"
    return result | {"limited by": found.limiter}


def facts(found: Prediction, model: Model) -> dict[str, str]:
    """The prediction as named facts."""
    result = summary(found, model)
    result |= {f"busy: {name}": f"{share:.0%}" for name, share in found.busy.items()}
    stalls = sorted(found.stalls.items(), key=lambda item: -item[1])
    result |= {f"warps: {name}": f"{share:.0%}" for name, share in stalls if share >= _LEAST}
    lines = [(at, x) for at, x in found.by_source_line().items() if at and x >= _LEAST]
    result |= {f"line {_short(at)}": f"{share:.0%}" for at, share in lines[:_LINES]}
    return result


def _short(line: str) -> str:
    """A file's name without its folder, and the line."""
    return line.replace("\\", "/").rsplit("/", 1)[-1]


def beside(before: Prediction, after: Prediction, model: Model) -> list[tuple[str, str, str]]:
    """The facts of two predictions as rows, except source lines."""
    old, new = facts(before, model), facts(after, model)
    names = [name for name in {**old, **new} if not name.startswith("line ")]
    return [(name, old.get(name, "–"), new.get(name, "–")) for name in names]


def notes(records: Sequence[Record], model: Model) -> list[str]:
    """Lines below a table with predicted times: of which GPU, their order, those refused."""
    told = [(r.rung, r.prediction) for r in records if r.prediction]
    found = sorted((p["time_s"], name) for name, p in told if "time_s" in p)
    lines = []
    if found:
        names = ", ".join(name for _, name in found)
        lines = [f"Times are {device(model)}; the fastest first: {names}.", _interval(model)]
    return lines + [f"{name}: not predicted: {p['refused']}" for name, p in told if "refused" in p]


def _interval(model: Model) -> str:
    if not model.interval:
        return "Their error is unknown: no time on such a GPU was compared with a prediction."
    low, high = model.interval
    return f"Four times in five, the time is {low:.2f} to {high:.2f} of the predicted one."
