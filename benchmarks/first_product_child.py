"""One process of first-product. Imports nothing else before its clock starts."""

import sys
import time

SIZE = 4096
STEPS = ("import_torch_s", "torch_s", "gemmlab_s", "again_s")
LAB = {"cutlass", "llvmlite", "platformdirs", "typer", "rich", "cuda.core", "cuda.bindings.nvrtc"}


def main(place: str, size: int) -> dict[str, object]:
    """The seconds of the steps, and the modules of the lab that were imported."""
    times = [time.perf_counter()]

    def step() -> None:
        times.append(time.perf_counter())

    import torch

    step()
    a, b = torch.randn(2, size, size, device=place)
    wait = torch.cuda.synchronize if place == "cuda" else torch.cpu.synchronize
    a @ b
    wait()
    step()
    import gemmlab

    for _ in range(2):
        gemmlab.matmul(a, b)
        wait()
        step()
    return {
        "seconds": {name: times[i + 1] - times[i] for i, name in enumerate(STEPS)},
        "tier": gemmlab.last_plan().tier,
        "of_the_lab": sorted(LAB & sys.modules.keys()),
    }


if __name__ == "__main__":
    import json

    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
