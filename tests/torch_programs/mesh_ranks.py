"""What processes of meshes run: started by the tests of meshes, once for all checks.

    python mesh_ranks.py cpu 2 3 4

With "cuda", each process has a GPU and the group is NCCL's. If there are too few GPUs, all
processes share one, which symmetric memory allows if TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES is
set, and the group is gloo's.

PyTorch is imported once; then the processes of each world are forked, one world after the other.
A check that fails leaves the processes out of step: new ones run the checks after it.
The output is JSON: world → check → what went wrong. The checks are in mesh_checks, by subject.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from mesh_checks import CHECKS
from mesh_checks.common import Check
from torch.distributed.device_mesh import init_device_mesh

DEVICE = sys.argv[1] if __name__ == "__main__" else "cpu"
TIMEOUT = timedelta(seconds=60)
GRACE_S = 10.0  # for the others to end, after a process has failed


def checks(size: int) -> dict[str, Check]:
    """The checks of a world; those that take long and depend little on its size are for one."""
    costly = {
        "added_and_out": 4,
        "gradients": 2,
        "pytorchs_operators": 2,
        "compiled": 2,
        "measuring_products": 4,
    }
    if DEVICE == "cuda":
        costly = {"compiled": 2}
    every = sorted(CHECKS.items())  # a check whose name starts with z comes last
    return {name: check for name, check in every if costly.get(name, size) == size}


def work(rank: int, size: int, names: Sequence[str], folder: Path) -> None:
    """Run these checks as one process of a world, and write what went wrong."""
    backend = "gloo"
    if DEVICE == "cuda":
        own = torch.cuda.device_count() >= size
        torch.cuda.set_device(rank if own else 0)
        os.environ["LOCAL_WORLD_SIZE"] = str(size)
        backend = "nccl" if own else "gloo"
    address = f"file://{folder / 'rendezvous'}"
    dist.init_process_group(
        backend, init_method=address, rank=rank, world_size=size, timeout=TIMEOUT
    )
    mesh = init_device_mesh(DEVICE, (size,))
    grid = init_device_mesh(DEVICE, (2, 2)) if size == 4 else None
    for name in names:
        text = ""
        try:
            CHECKS[name](mesh, grid)
            if DEVICE == "cuda":
                torch.cuda.synchronize()
        except BaseException:
            text = f"process {rank}: {traceback.format_exc()}"
        (folder / f"{name}.{rank}").write_text(text)
        if text:
            os._exit(1)


def start(rank: int, size: int, names: Sequence[str], folder: Path) -> int:
    """Fork one process of a world; return its id."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work(rank, size, names, folder)
            code = 0
        except BaseException:  # before the first check
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(children: Sequence[int]) -> list[int]:
    """Wait for processes; return their exit codes. After one has failed, others are soon killed."""
    codes: dict[int, int] = {}
    deadline = float("inf")
    while len(codes) < len(children):
        for child in set(children) - set(codes):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                codes[child] = os.waitstatus_to_exitcode(status)
                if codes[child]:
                    deadline = min(deadline, time.monotonic() + GRACE_S)
            elif time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[child] for child in children]


def run(size: int) -> dict[str, str]:
    """Fork the processes of a world; return what went wrong, by check."""
    found: dict[str, str] = {}
    names = list(checks(size))
    while names:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            codes = ended([start(rank, size, names, folder) for rank in range(size)])
            for check_name in names:
                lives = size - (check_name == "z_a_rank_that_dies")
                paths = [folder / f"{check_name}.{rank}" for rank in range(lives)]
                texts = [path.read_text() if path.exists() else None for path in paths]
                told = [
                    f"process {rank} did not end it; exit codes {codes}" if text is None else text
                    for rank, text in enumerate(texts)
                ]
                found[check_name] = "\n".join(filter(None, told))
                if found[check_name]:
                    break
            names = names[names.index(check_name) + 1 :]
    return found


def example() -> str:
    """Run examples/torchrun.py as the only process of a world; return what it prints."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    world = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            os.environ |= world
            try:
                with contextlib.redirect_stdout(output):
                    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "torchrun.py"))
            except BaseException:
                traceback.print_exc(file=output)
            finally:
                output.flush()
                os._exit(0)
        os.waitpid(child, 0)
        output.seek(0)
        return output.read()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.freeze()  # else each process would copy the memory of PyTorch's objects to count them
    found: dict[str, Any] = {size: run(int(size)) for size in sys.argv[2:]}
    if DEVICE == "cpu":
        found["example"] = example()
    print(json.dumps(found))
