"""gemmlab.matmul as callers see it, and cuBLAS; needs PyTorch and CuPy. Minutes of GPU time.

    python -m benchmarks matmul benchmarks/h200/matmul.json [PART …]

Times are of whole products, float32 in and out, N(0,1) inputs. Each contender is captured in a CUDA
graph of calls, the graphs are replayed in turn, and each number is the median of the replays, with
10th and 90th percentiles where noted. SGEMM is also timed alone, replay after replay: alternating
with float16 products it runs on a warmer chip at a lower clock. Energy is that of the whole card
(NVML's counter) over a second of one contender. Host time is measured in bursts of calls that fit
into the GPU's queue.
"""

from benchmarks.matmul import host, results, speed, tables, workloads
from benchmarks.measurement import Measurement, Rows

MEASUREMENT = Measurement(
    parts={
        "overhead": Rows(host.overhead, ("library", "call")),
        "errors": Rows(results.errors, ("family", "k")),
        "solves": Rows(results.solves, ("family", "n")),
        "shapes": Rows(speed.shapes, ("m", "n", "k", "batch", "transposed")),
        "drawn": Rows(speed.drawn, ("m", "n", "k", "batch", "transposed")),
        "squares": Rows(speed.squares, ("n",)),
        "workloads": Rows(workloads.workloads, ("workload",)),
    },
    pages={"matmul.md": tables.summary, "matmul-results.md": tables.results},
)
