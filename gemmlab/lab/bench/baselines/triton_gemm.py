"""C = A·B in Triton: the basic tiled kernel, in float32 (input_precision="ieee").

Triton's default for float32 is TF32, another precision class.
"""

from __future__ import annotations

from typing import Any

from gemmlab.core.packages import TRITON
from gemmlab.devices.cuda import CudaDevice
from gemmlab.lab.bench.baselines.arrays import torch_on
from gemmlab.lab.bench.baselines.blas import Product
from gemmlab.lab.bench.contenders import Arguments, Bound

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 16
WARPS, STAGES = 8, 3


class TritonMatmul(Product):
    """The Triton kernel; each program computes one tile of C."""

    name, title = "triton", "a tiled Triton kernel, input_precision ieee"

    def __init__(self, device: CudaDevice, layout: str) -> None:
        super().__init__(layout)
        triton: Any = TRITON.load()
        from gemmlab.lab.bench.baselines.triton_kernel import matmul

        self._torch, self._kernel = torch_on(device), matmul
        self.details: dict[str, Any] = {
            "call": f"tl.dot(…, input_precision='ieee'), {BLOCK_M}×{BLOCK_N}×{BLOCK_K}, "
            f"{WARPS} warps, {STAGES} stages",
            "compute_type": "float32, TF32 off",
            "triton": triton.__version__,
        }

    def bind(self, args: Arguments) -> Bound:
        torch = self._torch
        a, b, c = self._operands(args, lambda view: torch.as_tensor(view, device="cuda"))
        m, n, k = args[3:6]
        grid = (-(-m // BLOCK_M), -(-n // BLOCK_N))
        strides = (*a.stride(), *b.stride(), *c.stride())

        def run() -> None:
            self._kernel[grid](
                *(a, b, c, m, n, k, *strides),
                *(BLOCK_M, BLOCK_N, BLOCK_K),
                num_warps=WARPS,
                num_stages=STAGES,
            )

        return Bound(run)
