"""Tables of products on several GPUs, from the records of `gemmlab distributed measure`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gemmlab.core.figures import seconds
from gemmlab.report.markdown import table

# The efficiency of rows·rows that was aimed at, in percent, by GPUs and size.
AIMS = {
    2: {4096: 80, 8192: 90, 16384: 96, 32768: 98},
    4: {4096: 60, 8192: 80, 16384: 92, 32768: 96},
}
_ROWS, _LOADED = "rows·rows ", "under load, "
_CONTENDERS = {
    "by hand": "all-gather, then gemmlab",
    "gemmlab": "gemmlab",
    "in a CUDA graph": "gemmlab, overlapped, in a CUDA graph",
    "`torch.matmul`": "torch.matmul",
    "fused": "fused_all_gather_matmul, columns of b",
}
Measured = Mapping[str, Any]  # a record


def speeds(records: Sequence[Measured]) -> str:
    """Products with row-sharded operands: times, and shares of the speed of all GPUs."""
    lines = []
    timed = {row["by"] for record in records for row in record["rows"]}
    contenders = {name: by for name, by in _CONTENDERS.items() if by in timed}
    for record in records:
        count = record["processes"]
        found = {(row["case"], row["by"]): row for row in record["rows"]}
        for n, aim in AIMS[count].items():
            case = f"{_ROWS}{n}"
            own = found[case, "gemmlab"]
            lines.append(
                [
                    str(count),
                    str(n),
                    _timed(found[case, "one process"]),
                    *(_cell(found.get((case, by)), by == "gemmlab") for by in contenders.values()),
                    f"{aim}%",
                    f"{100 * (own['predicted'] / own['seconds'] - 1):+.0f}%",
                ]
            )
    return table(["GPUs", "n", "one GPU", *contenders, "aim", "predicted"], lines)


def others(records: Sequence[Measured]) -> str:
    """The other cases and the programs, beside `torch.matmul` of the same DTensors."""
    lines = []
    for record in records:
        found: dict[str, dict[str, Measured]] = {}
        for row in record["rows"]:
            if not row["case"].startswith((_ROWS, _LOADED)):
                found.setdefault(row["case"], {})[row["by"]] = row
        for case, by in found.items():
            own = by["gemmlab"]
            predicted = own.get("predicted")
            change = f"{100 * (predicted / own['seconds'] - 1):+.0f}%" if predicted else "–"
            cells = [_cell(own), _cell(by.get("torch.matmul")), change]
            lines.append([str(record["processes"]), case, *cells])
    return table(["GPUs", "product", "gemmlab", "`torch.matmul`", "predicted"], lines)


def loads(records: Sequence[Measured]) -> str:
    """The products of `speeds` in long runs."""
    lines = []
    for record in records:
        found = {(row["case"], row["by"]): row for row in record["rows"]}
        for n in AIMS[record["processes"]]:
            alone, own = (found.get((f"{_LOADED}{n}", by)) for by in ("one process", "gemmlab"))
            if alone and own:
                count = str(record["processes"])
                lines.append([count, str(n), _timed(alone), _cell(own, True)])
    return table(["GPUs", "n", "one GPU", "gemmlab"], lines)


def _cell(row: Measured | None, has_clock: bool = False) -> str:
    if row is None or "failed" in row:
        return "–"
    share = f", {100 * row['efficiency']:.0f}%" if row["efficiency"] else ""
    return f"{_timed(row) if has_clock else seconds(row['seconds'])}{share}"


def _timed(row: Measured) -> str:
    """The time, and the mean clock if the record has it."""
    clock = row.get("clock")
    return seconds(row["seconds"]) + (f" at {clock / 1e9:.2f} GHz" if clock else "")


def streaming(record: Measured) -> str:
    """The products of host arrays on GPUs of one process."""
    m, n, k = record["shape"]
    lines = [
        [
            str(row["devices"]),
            "all" if row["memory"] is None else f"{row['memory'] / 1e9:.1f} GB",
            f"{row['seconds']:.2f} s",
            f"{2 * m * n * k / row['seconds'] / 1e12:.0f}",
        ]
        for row in record["rows"]
    ]
    return table(["GPUs", "memory of each", "time", "TFLOPS"], lines)
