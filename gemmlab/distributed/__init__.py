"""Products larger than one GPU: of DTensors, and of host arrays on several GPUs of one process.

import gemmlab.distributed as gd

c = gemmlab.matmul(a, b)  # of DTensors: a DTensor
c = gd.matmul(a, b, out_placements=[Replicate()])
print(gd.plan((32768, 32768), (32768, 32768), mesh=(16, 8)))  # without any GPU
"""

from __future__ import annotations

from gemmlab.distributed.api import matmul, plan
from gemmlab.distributed.links import Link, Machine, load, use
from gemmlab.distributed.plans import Overlap, Plan, Transfer

__all__ = ["Link", "Machine", "Overlap", "Plan", "Transfer", "load", "matmul", "plan", "use"]
