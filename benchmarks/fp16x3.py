"""The two float32 products on tensor cores by name, and cuBLAS; needs PyTorch. Minutes of GPU time.

    python -m benchmarks fp16x3 benchmarks/h200/fp16x3.json [PART …]

Times: every contender computes the same product of N(0,1) matrices, float32 to float32. `multiply`
is a product of operands that were packed before. Calls are captured in CUDA graphs of at least
20 ms, which are replayed in turn. Each number is the median of the replays, with the 10th and 90th
percentile. Small matrices rotate through more memory than L2 holds ("cold") and are also timed with
one set ("warm"). Clock and power are read after every shape.

Errors, also of cuBLAS SGEMM, against float64 on the same GPU: Frobenius norm; the largest |error|
over |A||B| in units of 2^-24; mean signed error over mean magnitude.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

import gemmlab
from benchmarks import accuracy
from benchmarks.gpu import Gpu, Work
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from benchmarks.timing import of_graphs, spread
from gemmlab.report.markdown import table

SCHEMES = ("fp16x3", "bf16x6")
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
# m, n, k, batch, transposes of A and B; of fp16x3 alone
OTHERS = [(4097, 4097, 4097, 1, "nn"), (5000, 5000, 5000, 1, "nn"), (4096, 14336, 4096, 1, "nn")]
OTHERS += [(8192, 256, 8192, 1, "nn"), (256, 8192, 8192, 1, "nn"), (8192, 8192, 256, 1, "nn")]
OTHERS += [(4096, 4096, 4096, 1, way) for way in ("nt", "tn", "tt")]
OTHERS += [(1024, 1024, 1024, 16, "nn")]
FAMILIES = ["normal", "uniform", "plus-minus", "half-normal"]
FAMILIES += ["signed-lognormal 1", "signed-lognormal 2", "signed-lognormal 4", "signed-lognormal 6"]
FAMILIES += ["lognormal 1", "lognormal 2", "lognormal 4"]
DEPTHS = (16, 64, 256, 1024, 2048, 4096, 16384)
SHOWN = (256, 4096, 16384)
SAMPLE = 1024  # rows and columns of the products whose errors are measured
ROUNDS, SHORTEST_S = 20, 0.02  # replays; of a graph
ROTATED = 140 << 20  # bytes: 2.25 times the L2 of an H200
SMALL = 2048**2  # elements of C: such products are also timed warm


def times(gpu: Gpu) -> Iterator[Row]:
    """Both schemes on squares; fp16x3, SGEMM and 16-bit products on all shapes."""
    cases = [(scheme, (n, n, n, 1, "nn")) for scheme in SCHEMES for n in SQUARES]
    cases += [("fp16x3", case) for case in OTHERS]
    for scheme, case in cases:
        for warm in (False, True)[: 1 + (case[0] * case[1] <= SMALL)]:
            yield time_shape(gpu, scheme, *case, warm)
            gpu.release()


def time_shape(
    gpu: Gpu, scheme: str, m: int, n: int, k: int, batch: int, layout: str, warm: bool
) -> Row:
    size = 4 * batch * (m * k + k * n + m * n)
    sets = 1 if warm else math.ceil(ROTATED / size)
    graphs: dict[str, tuple[Work, int]] = {}
    for name, each in contenders(gpu, scheme, (m, n, k, batch, layout), sets).items():
        for call in each:
            call()
        gpu.synchronize()
        once = gpu.graph(each)
        seconds = statistics.median(gpu.seconds(once) for _ in range(3))
        times = math.ceil(SHORTEST_S / seconds)
        graphs[name] = gpu.graph(each * times), times * len(each)
    measured = of_graphs(gpu, graphs, ROUNDS)
    flops = 2.0 * m * n * k * batch
    return {
        **{"m": m, "n": n, "k": k, "batch": batch, "layout": layout},
        "scheme": scheme,
        "inputs": "warm" if warm else "cold",
        **gpu.state(),
        **{name: spread(seconds, flops) for name, seconds in measured.items()},
    }


def contenders(
    gpu: Gpu, scheme: str, case: tuple[int, int, int, int, str], sets: int
) -> dict[str, list[Work]]:
    """For each contender a list of calls, one per set of matrices."""
    matmul = gpu.torch.matmul
    m, n, k, batch, layout = case
    stack = (batch,) if batch > 1 else ()
    found: dict[str, list[Work]] = {}

    def tf32(a: Any, b: Any, out: Any) -> None:
        with gpu.tf32():
            matmul(a, b, out=out)

    for seed in range(sets):
        a = gpu.normal(*stack, *((m, k) if layout[0] == "n" else (k, m)), seed=seed)
        b = gpu.normal(*stack, *((k, n) if layout[1] == "n" else (n, k)), seed=sets + seed)
        a, b = (x.mT if t == "t" else x for x, t in zip((a, b), layout, strict=True))
        c = gpu.empty(*stack, m, n)
        packed = [
            gemmlab.pack(x, side=side, precision=scheme) for x, side in ((a, "left"), (b, "right"))
        ]
        ways: dict[str, tuple[Any, ...]] = {
            scheme: (gemmlab.matmul, a, b, c, {"precision": scheme}),
            f"{scheme} multiply": (gemmlab.matmul, *packed, c, {"precision": scheme}),
        }
        if scheme == "fp16x3":
            ways["sgemm"] = (matmul, a, b, c, {})
            ways["tf32"] = (tf32, a, b, c, {})
            ways["fp16"] = (matmul, a.half(), b.half(), c.half(), {})
        for name, (multiply, x, y, out, options) in ways.items():
            call = lambda f=multiply, x=x, y=y, out=out, o=options: f(x, y, out=out, **o)  # noqa: E731
            found.setdefault(name, []).append(call)
    return found


def errors(gpu: Gpu) -> Iterator[Row]:
    for scheme in SCHEMES:
        for k in DEPTHS:
            for family in FAMILIES:
                yield check(gpu, scheme, k, family)


def check(gpu: Gpu, scheme: str, k: int, family: str) -> Row:
    a, b = gpu.draw(family, (SAMPLE, k), 1), gpu.draw(family, (k, SAMPLE), 2)
    c = gemmlab.matmul(a, b, precision=scheme)
    report = gemmlab.last_plan().report()
    exact = accuracy.exact(a, b)
    return {
        **{"scheme": scheme, "family": family, "k": k},
        **accuracy.errors(c, *exact),
        "sgemm": accuracy.errors(a @ b, *exact),
        "at_risk": (report.at_risk or 0) / (a.numel() + b.numel()),
        "wide": report.wide or 0,
        "repeats": gpu.torch.equal(c, gemmlab.matmul(a, b, precision=scheme)),
    }


def special_inputs(gpu: Gpu) -> Iterator[tuple[str, Any, Any]]:
    """Named pairs of matrices whose products follow from rules."""
    torch, n = gpu.torch, SAMPLE
    a, b = gpu.normal(n, n, seed=5), gpu.normal(n, n, seed=6)
    integers = torch.randint(-8, 9, (2, n, n), device=gpu.place).float()
    eye = torch.eye(n, device=gpu.place)
    yield "integers", *integers
    yield "one-hot", eye[torch.randperm(n, device=gpu.place)], b
    yield "zeros", torch.zeros_like(a), b
    yield "subnormal", a * 1e-40, eye
    yield "tiny and huge", a * 1e-38, b * 1e38
    yield "overflow", a * 1e30, b * 1e30
    yield "largest", torch.full_like(a, torch.finfo(torch.float32).max), eye
    spoilt = a.clone()
    for index, value in enumerate((math.inf, math.nan, -math.inf)):
        spoilt[index * n // 3, index] = value
    yield "infinity and NaN in A", spoilt, b
    yield "infinity and NaN in B", a, spoilt
    yield "infinity in both", spoilt, spoilt


def special(gpu: Gpu) -> Iterator[Row]:
    """Whether NaN and infinity are where the reference has them, and the error of the rest."""
    torch = gpu.torch

    def same(x: Any, y: Any) -> bool:
        infinite = torch.equal(torch.where(x.isinf(), x, 0), torch.where(y.isinf(), y, 0))
        return infinite and torch.equal(x.isnan(), y.isnan())

    for scheme in SCHEMES:
        for name, a, b in special_inputs(gpu):
            c = gpu.torch.full_like(a, 7.0)
            gemmlab.matmul(a, b, out=c, precision=scheme)
            sgemm, (exact, magnitude) = a @ b, accuracy.exact(a, b)
            finite = torch.isfinite(sgemm)
            worst = [
                accuracy.worst_u(x[finite], exact[finite], magnitude[finite])
                if finite.any()
                else 0.0
                for x in (c, sgemm)
            ]
            yield {
                "scheme": scheme,
                "inputs": name,
                "nonfinite_as_sgemm": same(c, sgemm),
                "nonfinite_as_float64": same(c, exact.float()),
                "worst_u": float(f"{worst[0]:.3g}"),
                "sgemm_worst_u": float(f"{worst[1]:.3g}"),
            }


def times_table(rows: list[Row]) -> str:
    """TFLOPS of 2·m·n·k, from float32 to float32."""
    strict = {shape_of(row): row["bf16x6"]["tflops"] for row in rows if "bf16x6" in row}
    headings = ["m × n × k", "inputs", "fp16x3", "its product alone", "bf16x6"]
    headings += ["SGEMM", "TF32", "FP16 ÷ 3", "fp16x3 / SGEMM"]
    lines = []
    for row in rows:
        if "fp16x3" not in row:
            continue
        own, plain = row["fp16x3"], row["sgemm"]
        lines.append(
            [
                *shape_of(row),
                f"{own['tflops']} ({own['p10']}–{own['p90']})",
                row["fp16x3 multiply"]["tflops"],
                strict.get(shape_of(row), "–"),
                plain["tflops"],
                row["tf32"]["tflops"],
                round(row["fp16"]["tflops"] / 3, 1),
                f"{plain['us'] / own['us']:.1f}×",
            ]
        )
    return table(headings, lines)


def shape_of(row: Row) -> tuple[str, str]:
    """The name and the inputs of a row's product."""
    stack = f"{row['batch']} × " if row["batch"] > 1 else ""
    given = "" if row["layout"] == "nn" else f" ({row['layout']})"
    return f"{stack}{row['m']} × {row['n']} × {row['k']}{given}", row["inputs"]


def errors_table(rows: list[Row]) -> str:
    """Errors of the two schemes and of SGEMM, for some depths."""
    headings = ["inputs", "k", "", "Frobenius", "bias", "componentwise, u", "at risk", "wide"]
    lines = []
    for family in FAMILIES:
        for k in SHOWN:
            found = [r for r in rows if r["family"] == family and r["k"] == k]
            shown = [(r["scheme"], r, f"{r['at_risk']:.1e}", r["wide"]) for r in found]
            for name, e, *counts in [*shown, ("SGEMM", found[0]["sgemm"], "", "")]:
                norm, bias = f"{e['frobenius']:.2e}", f"{e['bias']:.1e}"
                worst = f"{e['componentwise_u']:.3g}"
                lines.append([family, k, name, norm, bias, worst, *counts])
    return table(headings, lines)


MEASUREMENT = Measurement(
    parts={
        "special": Rows(special, ("scheme", "inputs")),
        "errors": Rows(errors, ("scheme", "family", "k")),
        "times": Rows(times, ("scheme", "m", "n", "k", "batch", "layout", "inputs")),
    },
    pages={
        "fp16x3.md": lambda record: {
            "times": times_table(record["times"]),
            "errors": errors_table(record["errors"]),
        }
    },
)
