"""torchrun --nproc-per-node 4 torchrun.py: rows of a and b on 4 GPUs, or on 4 CPU processes."""

import os

import torch
from torch.distributed import destroy_process_group, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import gemmlab

device = "cuda" if torch.cuda.is_available() else "cpu"
mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
a, b = (distribute_tensor(torch.randn(1024, 1024), mesh, [Shard(0)]) for _ in "ab")
c = gemmlab.matmul(a, b)
print(f"process {mesh.get_rank()}: {tuple(c.to_local().shape)} of {tuple(c.shape)}", flush=True)
destroy_process_group()
