"""A float32 product from 16-bit products: tensor cores multiply, float32 registers accumulate.

Per clock, a multiprocessor's FP32 units do 128 multiply-adds, its tensor cores 2048 in float16. So
three products (`fp16x3`: hi·lo + lo·hi + hi·hi) still peak at five times FP32. The price: packing
both matrices moves 8 more bytes per element, and two float16 parts hold 22 to 24 bits only of
elements within 2^17 of the largest in their row: try `--family wide`. `bf16x6` uses three bfloat16
parts, with float32's range of exponents, and six products.

Three launches, more if k is large: pack A, pack B, multiply. `gemmlab.matmul` uses the same kernels
with the tile that suits the shape. `gemmlab docs fp16x3` has the method, errors and times. Limiter:
the power drawn by tensor cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmlab.kernels.common import require
from gemmlab.kernels.gemm.simt import check_layout
from gemmlab.kernels.gemm.sm90 import mainloop
from gemmlab.kernels.gemm.sm90.config import BF16X6, TileConfig
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.linalg.arch.sm90 import SM90
from gemmlab.linalg.planning.launch import Address, PlannedLaunch, WorkspaceAddresses
from gemmlab.linalg.planning.packed import ALIGNMENT
from gemmlab.linalg.planning.program import Factor, Job, placed
from gemmlab.linalg.planning.tiers import Choice
from gemmlab.linalg.shapes import Operand, Stack


@dataclass(frozen=True)
class Config(TileConfig):
    """A tile and a layout. With a column-major C, Cᵀ = Bᵀ·Aᵀ is computed."""

    layout: str = "row"

    def __post_init__(self) -> None:
        check_layout(self.layout)
        major = "mn" if self.layout == "row" else "k"
        object.__setattr__(self, "b_major", major)  # the layout determines it
        require(self.cluster in (1, 2), f"cluster = {self.cluster}, must be 1 or 2")
        super().__post_init__()


def operands(config: Any, shape: Mapping[str, int]) -> tuple[Operand, Operand]:
    """The left factor by rows, the right one by columns, in matrices without padding."""
    m, n, k = (shape[axis] for axis in "mnk")
    if config.layout == "row":
        return Operand(m, k, True, k), Operand(n, k, False, n)
    return Operand(n, k, True, k), Operand(m, k, True, k)


def product_of(config: Config, shape: Mapping[str, int]) -> Job:
    """The product with the rung's tile. Its factors are "a" and "b", whichever arrays they are."""
    left, right = operands(config, shape)
    scheme = config.scheme.name
    c = Stack(left.vectors, right.vectors, right.vectors, 1)
    factors = Factor("a", left, scheme), Factor("b", right, scheme)
    return Job(*factors, c, Choice(scheme, "the rung's own"), tile=config)


def launches(
    config: Config,
    shape: Mapping[str, int],
    args: Mapping[str, Address],
    _arch: str = SM90.target,
) -> tuple[PlannedLaunch, ...]:
    """All launches of the product. args: the problem's arguments and a workspace, by name."""
    a, b, c, workspace = (args[name] for name in ("a", "b", "c", "workspace"))
    first, second = (a, b) if config.layout == "row" else (b, a)
    product = product_of(config, shape)
    begin = workspace + product.left.workspace
    report = begin + product.right.workspace
    # Any address will do for totals if there are none.
    totals_bytes = product.totals(SM90.multiprocessors)
    totals = report + (ALIGNMENT if totals_bytes else 0)
    notes = report + (ALIGNMENT + totals_bytes)
    memory = WorkspaceAddresses(workspace, begin, report, totals, notes)
    planned = product.launches(memory, SM90.multiprocessors)
    return placed(planned, {"a": first, "b": second, "c": c})


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    """The geometry of the launch that multiplies."""
    made = launches(config, shape, dict.fromkeys(("a", "b", "c", "workspace"), 0))
    launch = next(launch for launch in made if launch.kernel == "multiply_packed")
    return Geometry(launch.grid, launch.block, launch.dynamic_smem)


def workspace(config: Config, shape: Mapping[str, int]) -> int:
    """Bytes: both packed operands with their counts, the report, totals, and notes."""
    product, sms = product_of(config, shape), SM90.multiprocessors
    parts = product.left.workspace + product.right.workspace
    return parts + ALIGNMENT + product.notes(sms) + product.totals(sms)


def needs_terms(_config: object, shape: Mapping[str, int]) -> str | None:
    """Tensor cores truncate: their error can be two units where float32 rounding has one."""
    if shape["k"] < 4:
        return f"k = {shape['k']}: a sum of fewer than 4 products may be off by more than its bound"
    return None


RUNGS = tuple(
    Rung(
        name=config.scheme.name,
        problem="gemm",
        change=change,
        kernel=mainloop.kernel,
        parameters=mainloop.SIGNATURES["kernel"],
        config=config,
        geometry=geometry,
        choices={"block_n": (128, 192, 256), "stages": (4, 5, 6), "cluster": (1, 2)},
        requires=needs_terms,
        workspace=workspace,
        launches=launches,
        arch=SM90.target,
    )
    for config, change in (
        (Config(), "three float16 products on tensor cores"),
        (
            Config(scheme=BF16X6, block_n=128, stages=6, promote_k=32, total_k=1024),
            "six bfloat16 products, float32's range",
        ),
    )
)
