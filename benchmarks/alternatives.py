"""What can multiply float32 matrices on a Hopper GPU: gemmlab, cuBLAS, Triton, JAX. A minute.

    python -m benchmarks alternatives benchmarks/h200/alternatives.json

Needs PyTorch; Triton and JAX are measured if they are installed. Times are of whole products,
float32 in and out, square and row-major, of normal numbers. A round times a burst of calls of
each contender in turn, from an idle GPU until it is idle again; a time is the median of the rounds.
Triton's kernel is a tiled one; the best of a few tile shapes counts. Errors are relative to the
product in float64: that of the Frobenius norm, and the largest of an element relative to that of
|A||B|, in units of u = 2⁻²⁴.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import gemmlab
from benchmarks import accuracy
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement
from benchmarks.record import Row
from benchmarks.timing import in_turn
from gemmlab.report.markdown import table

SIZES = (1024, 2048, 4096, 8192)
ROUNDS, BURST_S = 7, 0.02  # seconds of a burst
DEEPEST = 4096  # the errors are those of a product of this size

# block_m, block_n, block_k, warps, stages
TRITON_TILES = (
    (128, 128, 32, 8, 3),
    (128, 256, 32, 8, 3),
    (128, 128, 32, 4, 3),
    (64, 128, 32, 4, 4),
)
TRITON_PRECISIONS = ("ieee", "tf32x3", "bf16x3", "bf16x6", "tf32")
JAX_PRESETS = (
    "F32_F32_F32",
    "TF32_TF32_F32_X3",
    "BF16_BF16_F32_X3",
    "BF16_BF16_F32_X6",
    "TF32_TF32_F32",
)

Multiply = Callable[[Any, Any], Any]  # of two tensors; the result is one of the same library


def tf32(gpu: Gpu) -> Multiply:
    def multiply(a: Any, b: Any) -> Any:
        with gpu.tf32():
            return a @ b

    return multiply


def of_triton(gpu: Gpu, precision: str, tile: tuple[int, ...]) -> Multiply:
    from gemmlab.lab.bench.baselines.triton_kernel import matmul

    block_m, block_n, block_k, warps, stages = tile

    def multiply(a: Any, b: Any) -> Any:
        (m, k), n = a.shape, b.shape[1]
        out = gpu.empty(m, n)
        strides = (*a.stride(), *b.stride(), *out.stride())
        grid = (-(-m // block_m), -(-n // block_n))
        matmul[grid](
            *(a, b, out, m, n, k, *strides),
            *(block_m, block_n, block_k, precision),
            num_warps=warps,
            num_stages=stages,
        )
        return out

    return multiply


def of_jax(preset: str) -> Multiply:
    import jax

    algorithm = jax.lax.DotAlgorithmPreset[preset]
    return jax.jit(lambda a, b: jax.lax.dot(a, b, precision=algorithm))


def candidates(gpu: Gpu) -> dict[str, list[Multiply]]:
    """By name: the ways to compute it, of which the fastest counts."""
    found: dict[str, list[Multiply]] = {
        "gemmlab.matmul": [gemmlab.matmul],
        "gemmlab.matmul, bf16x6": [lambda a, b: gemmlab.matmul(a, b, precision="bf16x6")],
        "cuBLAS SGEMM (torch.matmul)": [gpu.torch.matmul],
        "cuBLAS TF32 (torch.matmul)": [tf32(gpu)],
    }
    if find_spec("triton"):
        for precision in TRITON_PRECISIONS:
            ways = [of_triton(gpu, precision, tile) for tile in TRITON_TILES]
            found[f"Triton {precision}"] = ways
    if find_spec("jax"):
        for preset in JAX_PRESETS:
            found[f"JAX {preset}"] = [of_jax(preset)]
    return found


@dataclass(frozen=True)
class Contender:
    """The fastest way of a library to compute its product."""

    multiply: Multiply
    operands: Any
    seconds: float


def measure(size: int, gpu: Gpu) -> Row:
    tensors = [gpu.normal(size, size, seed=seed) for seed in (size, size + 1)]
    arrays: Any = tensors
    if find_spec("jax"):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        arrays = [jax.dlpack.from_dlpack(x) for x in tensors]
    records: Row = {}
    chosen: dict[str, Contender] = {}
    for name, ways in candidates(gpu).items():
        best = fastest(gpu, ways, arrays if name.startswith("JAX") else tensors)
        if isinstance(best, str):
            records[name] = {"error": best}
            continue
        chosen[name], records[name] = best, {}
        if size == DEEPEST:
            found = gpu.torch.from_dlpack(best.multiply(*best.operands))
            product, magnitude = accuracy.exact(*tensors)
            records[name] = {
                "norm": accuracy.norm(found, product),
                "componentwise_u": accuracy.worst_u(found, product, magnitude),
            }
    runs = {
        name: partial(burst, gpu, one.multiply, one.operands, max(3, round(BURST_S / one.seconds)))
        for name, one in chosen.items()
    }
    for name, samples in in_turn(runs, ROUNDS).items():
        seconds = statistics.median(samples)
        records[name] |= {
            "seconds": seconds,
            "fastest": min(samples),
            "slowest": max(samples),
            "tflops": 2 * size**3 / seconds / 1e12,
        }
    return records


def fastest(gpu: Gpu, ways: list[Multiply], operands: Any) -> Contender | str:
    """The way with the least time, or why none runs."""
    found, problems = [], []
    for multiply in ways:
        try:
            burst(gpu, multiply, operands, 1)
            seconds = min(burst(gpu, multiply, operands, 3) for _ in range(2))
        except Exception as error:  # what one library cannot do must not end the others
            problems.append(f"{type(error).__name__}: {error}".splitlines()[0][:200])
            continue
        found.append(Contender(multiply, operands, seconds))
    return min(found, key=lambda one: one.seconds) if found else problems[0]


def burst(gpu: Gpu, multiply: Multiply, operands: Any, calls: int) -> float:
    """Seconds of a call among `calls` calls."""

    def work() -> None:
        for _ in range(calls):
            result = multiply(*operands)
        if hasattr(result, "block_until_ready"):  # JAX's own streams
            result.block_until_ready()

    return gpu.wall(work) / calls


def alternatives(record: Row) -> dict[str, str]:
    """TFLOPS by size, and errors at 4096."""
    sizes = record["sizes"]
    about = (
        f"{record['gpu']}, PyTorch {record['torch']}, Triton {record['triton']}, JAX "
        f"{record['jax']}; TFLOPS, and errors at {DEEPEST}³."
    )
    rows = []
    for name, found in sizes[str(DEEPEST)].items():
        if "error" in found:
            rows.append([name, f"does not run: {found['error']}", *[""] * (len(sizes) + 1)])
            continue
        rates = (f"{sizes[size][name]['tflops']:.0f}" for size in sizes)
        rows.append([name, *rates, f"{found['norm']:.1e}", f"{found['componentwise_u']:.1f}"])
    headings = ["", *(f"{size}³" for size in sizes), "normwise", "componentwise, u"]
    return {"alternatives": f"{about}\n\n{table(headings, rows)}"}


MEASUREMENT = Measurement(
    parts={"sizes": {str(size): partial(measure, size) for size in SIZES}},
    pages={"matmul.md": alternatives},
)
