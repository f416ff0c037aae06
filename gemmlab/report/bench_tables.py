"""Terminal tables of benchmark records and comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gemmlab.core.figures import digits, percent, seconds
from gemmlab.lab.bench.compare import Comparison, machines
from gemmlab.lab.bench.job import case_name
from gemmlab.lab.bench.record import Record
from gemmlab.report.tables import plain_table

Column = tuple[str, Callable[[Record], str | None]]  # heading, cell


def _formatted(value: float | None, write: Callable[[float], str]) -> str | None:
    return None if value is None else write(value)


def _noise(value: float) -> str:
    return f"{value:.2f}%"


def _whole(value: float) -> str:
    return f"{value:.0f}"


# NVBench's columns come first, in NVBench's order. A narrow terminal omits columns from the end.
COLUMNS: tuple[Column, ...] = (
    ("sam-\nples", lambda r: str(r.samples)),
    ("CPU\ntime", lambda r: seconds(r.cpu_mean_s)),
    ("\nnoise", lambda r: _formatted(r.cpu_noise_percent, _noise)),
    ("GPU\ntime", lambda r: seconds(r.gpu_median_s)),
    ("\nnoise", lambda r: _formatted(r.gpu_noise_percent, _noise)),
    ("batch\nGPU", lambda r: _formatted(r.batch_mean_s, seconds)),
    ("\nTFLOPS", lambda r: _formatted(r.tflops, digits)),
    ("\nGB/s", lambda r: None if r.tflops else digits(r.gigabytes_per_second)),
    ("% of\n{baseline}", lambda r: _formatted(r.percent_of_baseline, percent)),
    ("% of roof,\nmeasured", lambda r: _formatted(r.roof_percent("measured"), percent)),
    ("data-\nsheet", lambda r: _formatted(r.roof_percent("datasheet"), percent)),
    ("error\nu", lambda r: _formatted(r.max_error_u, digits)),
    ("\nclass", lambda r: r.precision),
    ("SM\nMHz", lambda r: _formatted(r.sm_mhz, _whole)),
    ("\n°C", lambda r: _formatted(r.temperature_c, _whole)),
    ("\nW", lambda r: _formatted(r.power_w, _whole)),
)


def print_records(out: Console, records: Iterable[Record]) -> None:
    """Print one table per case, with the machine above it and NVBench's warnings below."""
    for number, (_, group) in enumerate(groupby(records, lambda record: record.case)):
        own = list(group)
        if number:
            out.print()
        out.print(heading(own[0]))
        out.print()
        out.print(bench_table(own, out.width))
        found = [f"{record.kernel}: {warning}" for record in own for warning in record.warnings]
        if found:
            out.print(f"\nWarnings: {'; '.join(found)}.")


def heading(record: Record) -> str:
    """Return two lines that describe the machine, the case and the protocol."""
    machine = record.machine
    sizes = tuple(record.shape.values())
    case = case_name(record.problem, sizes, record.layout, record.family)
    return (
        f"{machine['gpu']}, {machine['sms']} SMs, driver {machine['driver']}, clocks "
        f"{machine['clocks']}\n{case}, seed {record.seed}; cold runs, medians of "
        f"{record.protocol['rounds']} interleaved rounds"
    )


def bench_table(records: Sequence[Record], width: int) -> Table:
    """Return a table with one row per contender, in the order of `records`.

    Columns that do not fit `width` are omitted; the caption names them.
    """
    baseline = next((r.baseline["kernel"] for r in records if r.baseline), "")
    columns = [column for column in COLUMNS if any(column[1](record) for record in records)]
    cells = [[r.kernel, *((cell(r) or "–") for _, cell in columns)] for r in records]
    headings = ["kernel", *(name.format(baseline=baseline) for name, _ in columns)]
    shown = len(headings)
    while sum(_widths(headings, cells, shown)) > width and shown > 2:
        shown -= 1
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for index, name in enumerate(headings[:shown]):
        table.add_column(name, justify="right" if index else "left", no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row[:shown]))
    if shown < len(headings):
        left_out = (name.replace("-\n", "").replace("\n", " ") for name in headings[shown:])
        table.caption = f"omitted at this width: {', '.join(left_out)}"
        table.caption_justify = "left"
    return table


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]], shown: int) -> Iterator[int]:
    for column in zip(*(headings[:shown], *(row[:shown] for row in cells)), strict=True):
        yield 1 + max(len(line) for cell in column for line in cell.split("\n"))


def print_comparison(out: Console, found: Sequence[Comparison]) -> None:
    """Print one table per case, differences of the machines, and how many kernels changed how."""
    for case, group in groupby(sorted(found, key=lambda one: one.case), lambda one: one.case):
        out.print(case_name(*case), style="bold")
        out.print(comparison_table(group))
        out.print()
    for line in machines(found):
        out.print(line)
    counts = Counter(one.change for one in found)
    out.print(", ".join(f"{number} {change}" for change, number in counts.most_common()))


def comparison_table(found: Iterable[Comparison]) -> Table:
    """Return a table with one row per kernel of a case."""
    rows = [
        [
            one.kernel,
            _range(one.before),
            _range(one.after),
            _formatted(one.ratio, lambda ratio: f"{ratio:.3f}") or "–",
            one.change,
            one.clocks,
        ]
        for one in found
    ]
    headings = ["kernel", "A: median (p10–p90)", "B: median (p10–p90)", "B/A", "B is", "SM clock"]
    return plain_table(headings, rows)


def _range(record: Record | None) -> str:
    if record is None:
        return "–"
    ends = seconds(record.gpu_p10_s), seconds(record.gpu_p90_s)
    return f"{seconds(record.gpu_median_s)} ({ends[0]}–{ends[1]})"
