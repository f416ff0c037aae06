"""Tables of the record, for two pages of docs/."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean, median

from benchmarks.record import Row
from gemmlab.report.markdown import table

# Of an H200, rounded: a launch, copies, and float16 products at the clock that power permits.
LAUNCH_S, BYTES_PER_S, FLOPS = 2.2e-6, 4.1e12, 660e12


def summary(record: Row) -> dict[str, str]:
    return {"speed": speed(record["squares"])}


def results(record: Row) -> dict[str, str]:
    parts = (squares, shapes, errors, solves, workloads)
    found = {
        **{write.__name__: write(record[write.__name__]) for write in parts},
        "energy": energy(record["squares"]),
        "overhead": overhead(record),
    }
    if "drawn" in record:
        found |= {"drawn": shapes(record["drawn"]), "in-all": in_all(record)}
    return found


def speed(rows: list[Row]) -> str:
    """TFLOPS of the squares, in short."""
    headings = ["n", "gemmlab.matmul", "SGEMM", "faster", "TF32"]
    lines = []
    for row in rows:
        rates = [row[way]["tflops"] for way in ("default", "sgemm alone", "tf32")]
        own, plain, tf32 = (f"{rate:.0f}" for rate in rates)
        faster = row["sgemm alone"]["us"] / row["default"]["us"]
        lines.append([row["n"], own, plain, f"{faster:.1f}×", tf32])
    return table(headings, lines)


def squares(rows: list[Row]) -> str:
    """TFLOPS; the default with its 10th and 90th percentile."""
    names = ["default alone", "default + c", "fp16x3", "bf16x6"]
    names += ["sgemm", "sgemm alone", "tf32", "fp16", "three fp16"]
    headings = ["n", "default", *names[:4], "SGEMM", "SGEMM alone"]
    headings += ["TF32", "FP16", "three FP16 calls", "default / SGEMM"]
    lines = []
    for row in rows:
        own = row["default"]
        lines.append(
            [
                row["n"],
                f"{own['tflops']} ({own['p10']}–{own['p90']})",
                *(row[name]["tflops"] for name in names),
                f"{row['sgemm']['us'] / own['us']:.1f}×, "
                f"alone {row['sgemm alone']['us'] / row['default alone']['us']:.1f}×",
            ]
        )
    return table(headings, lines)


def energy(rows: list[Row]) -> str:
    names = ("default", "bf16x6", "sgemm", "tf32", "fp16", "three fp16")
    measured = [row for row in rows if "joules" in row]
    headings = ["joules per product", *(f"n = {row['n']}" for row in measured)]
    return table(headings, ([name, *(row["joules"][name] for row in measured)] for name in names))


def shapes(rows: list[Row]) -> str:
    """Microseconds, of consecutive calls and of graph replays."""
    headings = ["m × n × k", "ran", "calls: default", "SGEMM", "graphs: default", "SGEMM"]
    headings.append("SGEMM / default, calls and graphs")
    lines = []
    for row in rows:
        stack = f"{row['batch']} × " if row["batch"] > 1 else ""
        way = "" if row["transposed"] == "nn" else f" ({row['transposed']})"
        called = row["eager us"]["default"], row["eager us"]["sgemm"]
        replayed = row["default"]["us"], row["sgemm"]["us"]
        faster = ", ".join(f"{plain / own:.2f}" for own, plain in (called, replayed))
        sizes = f"{stack}{row['m']} × {row['n']} × {row['k']}{way}"
        lines.append([sizes, row["ran"], *called, *replayed, faster])
    return table(headings, lines)


def in_all(record: Row) -> str:
    """How much faster than SGEMM all shapes are, and how much faster they could be."""
    headings = ["shapes", "number", "SGEMM / default, geometric mean", "least", "most"]
    headings += ["below 0.98", "SGEMM / limit, geometric mean"]
    lines = []
    for title, part in (("chosen", "shapes"), ("drawn", "drawn")):
        rows = record[part]
        faster = [row["sgemm"]["us"] / row["default"]["us"] for row in rows]
        limits = [row["sgemm"]["us"] * 1e-6 / limit(row) for row in rows]
        means = [f"{geometric_mean(factors):.2f}" for factors in (faster, limits)]
        slower = sum(factor < 0.98 for factor in faster)
        ends = f"{min(faster):.2f}", f"{max(faster):.2f}"
        lines.append([title, len(rows), means[0], *ends, slower, means[1]])
    return table(headings, lines)


def limit(row: Row) -> float:
    """Seconds that no product in three float16 products can be expected to beat."""
    m, n, k, batch = (row[name] for name in ("m", "n", "k", "batch"))
    moved = 4 * batch * (m * k + k * n + m * n)
    return max(LAUNCH_S, moved / BYTES_PER_S, 3 * 2 * batch * m * n * k / FLOPS)


def errors(rows: list[Row]) -> str:
    """Errors for each family and k, ours and SGEMM's."""
    headings = ["inputs", "k", "ran", "Frobenius", "SGEMM's", "bias", "componentwise, u", "SGEMM's"]
    lines = []
    for row in sorted(rows, key=lambda row: row["family"]):
        if row["k"] not in (16, 256, 4096, 65536):
            continue
        plain = row["sgemm"]
        lines.append(
            [
                *(row["family"], row["k"], row["ran"]),
                *(f"{row['frobenius']:.2e}", f"{plain['frobenius']:.2e}", f"{row['bias']:.1e}"),
                *(row["componentwise_u"], plain["componentwise_u"]),
            ]
        )
    return table(headings, lines)


def solves(rows: list[Row]) -> str:
    """Medians over systems, and the mean factor against SGEMM, with the range over systems."""
    headings = ["matrix", "n", "default", "fp16x3", "SGEMM", "default / SGEMM", "fp16x3 / SGEMM"]
    lines = []
    for row in rows:
        medians = (f"{median(row[way]):.3g}" for way in ("default", "fp16x3", "sgemm"))
        factors = (against(row[way], row["sgemm"]) for way in ("default", "fp16x3"))
        lines.append([row["family"], row["n"], *medians, *factors])
    return table(headings, lines)


def against(ours: Sequence[float], theirs: Sequence[float]) -> str:
    factors = [a / b for a, b in zip(ours, theirs, strict=True)]
    return f"{geometric_mean(factors):.2f} ({min(factors):.2f}–{max(factors):.2f})"


def overhead(record: Row) -> str:
    """On a host at full speed, and on a slower one if it was measured."""
    hosts = {"µs of the host": "overhead", "of a slow host": "overhead on a slow host"}
    columns = {heading: record[part] for heading, part in hosts.items() if part in record}
    lines = (
        [
            *(rows[0]["library"], rows[0]["call"]),
            *(f"{row['us']} ({row['p10']}–{row['p90']})" for row in rows),
        ]
        for rows in zip(*columns.values(), strict=True)
    )
    return table(["arrays", "call", *columns], lines)


def workloads(rows: list[Row]) -> str:
    headings = ["program", "sizes", "with SGEMM, ms", "with gemmlab, ms", "faster", "same answers"]
    return table(
        headings,
        (
            [
                row["workload"],
                f"{row['points']} × {row['others']}, {row['dims']} dimensions",
                *(row["sgemm ms"], row["gemmlab ms"]),
                f"{row['sgemm ms'] / row['gemmlab ms']:.1f}×",
                f"{100 * row['same']:.2f} %",
            ]
            for row in rows
        ),
    )
