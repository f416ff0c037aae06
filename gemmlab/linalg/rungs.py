"""A float32 product from 16-bit products: tensor cores multiply, float32 registers accumulate.

Per clock, a multiprocessor's FP32 units do 128 multiply-adds, its tensor cores 2048 in float16. So
three products (`fp16x3`: hi·lo + lo·hi + hi·hi) still peak at five times FP32. The price: packing
both matrices moves 8 more bytes per element, and two float16 parts hold 22 to 24 bits only of
elements within 2^17 of the largest in their row: try `--family wide`. `bf16x6` uses three bfloat16
parts, with float32's range of exponents, and six products.

Four launches, more if k is large: pack A, pack B, multiply, repair rows and columns with an
infinity or a NaN. `gemmlab.matmul` uses the same kernels with the tile that suits the shape.
`gemmlab docs fp16x3` has the method, errors and times. Limiter: the power drawn by tensor cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.kernels.gemm.simt import check_layout
from gemmlab.kernels.gemm.sm90 import mainloop
from gemmlab.kernels.gemm.sm90.config import BF16X6, TileConfig
from gemmlab.kernels.rung import Geometry, Rung
from gemmlab.linalg.arch import sm90
from gemmlab.linalg.planning import plan
from gemmlab.linalg.planning.plan import ALIGNMENT, Address, Launch, Operand, Packed, Product


@dataclass(frozen=True)
class Config(TileConfig):
    """A tile and a layout. With a column-major C, Cᵀ = Bᵀ·Aᵀ is computed."""

    layout: str = "row"

    def __post_init__(self) -> None:
        check_layout(self.layout)
        major = "mn" if self.layout == "row" else "k"
        object.__setattr__(self, "b_major", major)  # the layout determines it
        super().__post_init__()


def operands(config: Config, shape: Mapping[str, int]) -> tuple[Operand, Operand]:
    """The left factor by rows, the right one by columns, in matrices without padding."""
    m, n, k = (shape[axis] for axis in "mnk")
    if config.layout == "row":
        return Operand(m, k, True, k), Operand(n, k, False, n)
    return Operand(n, k, True, k), Operand(m, k, True, k)


def product_of(left: Operand, right: Operand) -> Product:
    return Product(left.vectors, right.vectors, left.depth, right.vectors)


def launches(
    config: Config, shape: Mapping[str, int], args: Mapping[str, Address]
) -> tuple[Launch, ...]:
    """All launches of the product. args: the problem's arguments and a workspace, by name."""
    a, b, c, workspace = (args[name] for name in ("a", "b", "c", "workspace"))
    left, right = operands(config, shape)
    left_packed, right_packed = (
        Packed(config.scheme, x.vectors, x.depth, x.k_major, factor=name)
        for x, name in ((left, "a"), (right, "b"))
    )
    packed = (left_packed, right_packed)
    first, second = (a, b) if config.layout == "row" else (b, a)
    begin = workspace + packed[0].nbytes
    works = workspace, begin, begin + packed[1].nbytes
    product = product_of(left, right)
    needs_totals = plan.totals_bytes(product, config, sm90.MULTIPROCESSORS) > 0
    totals = works[2] + (ALIGNMENT if needs_totals else 0)  # any address will do if none is used
    return (
        *plan.pack(left, packed[0], first, works[0]),
        *plan.pack(right, packed[1], second, works[1]),
        *plan.multiply(
            product, config, *packed, (*works[:2], c), sm90.MULTIPROCESSORS, totals=totals
        ),
        plan.repair(product, left, right, packed, (first, second, c), works, sm90.MULTIPROCESSORS),
    )


def geometry(config: Config, shape: Mapping[str, int]) -> Geometry:
    """The geometry of the launch that multiplies."""
    made = launches(config, shape, dict.fromkeys(("a", "b", "c", "workspace"), 0))
    launch = next(launch for launch in made if launch.kernel == "multiply_packed")
    return Geometry(launch.grid, launch.block, launch.dynamic_smem)


def workspace(config: Config, shape: Mapping[str, int]) -> int:
    """Bytes: both packed operands with their counts, the report, and totals."""
    both = operands(config, shape)
    parts = sum(Packed(config.scheme, x.vectors, x.depth, x.k_major).nbytes for x in both)
    return parts + ALIGNMENT + plan.totals_bytes(product_of(*both), config, sm90.MULTIPROCESSORS)


def requires(config: Config, shape: Mapping[str, int]) -> str | None:
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
        requires=requires,
        workspace=workspace,
        launches=launches,
        arch=sm90.ARCH,
    )
    for config, change in (
        (Config(), "three float16 products on tensor cores"),
        (
            Config(scheme=BF16X6, block_n=128, stages=6, promote_k=32, total_k=1024),
            "six bfloat16 products, float32's range",
        ),
    )
)
