"""Tables of the record, for a page of docs/."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.programs.steps import WAYS
from benchmarks.record import Row
from gemmlab.report.markdown import table

OTHERS = (*WAYS[1:], "float32, again")


def tables(record: Row) -> dict[str, str]:
    parts = {"programs": times(record["programs"])}
    if "losses" in record:
        parts["losses"] = losses(record["losses"])
    return parts


def times(programs: Row) -> str:
    """Milliseconds of a step, by the clock and of the GPU, and how far its results differ."""
    headings = ["step", "float32, ms", "`enable()`", "faster", "GPU alone", "TF32"]
    headings += ["difference: `enable()`", "TF32"]
    return table(headings, _times(programs))


def _times(programs: Row) -> Iterator[list[str]]:
    for name, record in programs.items():
        for mode in ("eager", "compiled"):
            if mode not in record:
                continue
            plain, own, tf32 = (f"{record[mode][way]['ms']:.1f}" for way in WAYS)
            off = {way: f"{record['difference'][way]:.0e}" for way in WAYS}
            label = name if mode == "eager" else f"{name}, compiled"
            faster = f"{record[mode]['speedup']:.2f}×"
            busy = f"{record[mode]['busy_speedup']:.2f}×" if "busy_speedup" in record[mode] else "–"
            yield [label, plain, own, faster, busy, tf32, off["gemmlab"], off["tf32"]]


def losses(programs: Row) -> str:
    """The largest relative difference of a curve from that of float32."""
    rows = []
    for name, curves in programs.items():
        plain = curves["float32"]
        off = [
            max(abs(x - y) / abs(y) for x, y in zip(curves[other], plain, strict=True))
            for other in OTHERS
        ]
        shown = (f"{x:.0e}" for x in off)
        rows.append([name, f"{plain[0]:.3g}", f"{plain[-1]:.2g}", *shown])
    return table(["program", "loss, first", "last", *OTHERS], rows)
