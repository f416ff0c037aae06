"""wgmma of TF32 operands, an instruction that the CuTe DSL has no class for."""

from dataclasses import dataclass
from typing import Any

from cutlass import Boolean, Float32, TFloat32
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup
from cutlass.cute.nvgpu.warpgroup import mma as dsl

from gemmlab.kernels.gemm.sm90.direct_config import STEP
from gemmlab.kernels.gemm.sm90.sizes import MMA_M


@dataclass(frozen=True)
class WarpgroupTf32Op(dsl.MmaOp):
    """wgmma of 64 × n × 8: A in registers, B K-major in shared memory."""

    descriptive_name = "warpgroup TF32 MMA operation"

    def __init__(self, n: int) -> None:
        k_major, source = OperandMajorMode.K, warpgroup.OperandSource.RMEM
        super().__init__(TFloat32, TFloat32, Float32, (MMA_M, n, STEP), source, k_major, k_major)

    def _make_trait(self, *, loc: Any = None, ip: Any = None, **_: Any) -> dsl.MmaTraits:
        shape = dsl._pack_shape(self.shape_mnk, loc=loc, ip=ip)
        kind = dsl._cute_nvgpu_ir.MmaAtomSM90Type.get(
            shape.type.attribute,
            self.a_major_mode._to_ir(),
            self.b_major_mode._to_ir(),
            self.a_dtype.mlir_type,
            self.b_dtype.mlir_type,
            self.acc_dtype.mlir_type,
            self.a_src._to_ir(),
        )
        keeps = Boolean(False).ir_value(loc=loc, ip=ip)
        return dsl.MmaTraits(dsl.make_atom(kind, [keeps], loc=loc, ip=ip))
