"""`gemmlab distributed measure`: start one process per GPU, and show what they measured."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmlab.core import figures, status
from gemmlab.core.packages import TORCH
from gemmlab.errors import DeviceError, InputError, UnknownNameError

LIMIT_S = 1800.0
_DEVICES = ("cuda", "cpu")


def measure(
    device: str, processes: int | None, sizes: Sequence[int], programs: bool
) -> tuple[Any, str]:
    """Run measuring.py in processes of this machine; return its record, and what cut it short.

    Raises UnknownNameError, InputError, DeviceError, MissingDependencyError.
    """
    if device not in _DEVICES:
        raise UnknownNameError(f"no device {device!r}; it must be one of {', '.join(_DEVICES)}")
    if TORCH.version is None:
        TORCH.load()  # raises the error
    gpus = TORCH.load().cuda.device_count() if device == "cuda" else 0
    count = processes or gpus or 2
    if device == "cuda" and gpus < count:
        raise DeviceError(f"{count} processes need as many GPUs; this machine has {gpus}")
    if count < 1:
        raise InputError(f"{count} processes; at least 1 is needed")
    with tempfile.TemporaryDirectory() as folder, status.doing(f"measuring on {count} processes"):
        path = Path(folder) / "record.json"
        launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        launcher.append(f"--log-dir={folder}")  # else PyTorch leaves a folder
        asked = json.dumps({"device": device, "sizes": list(sizes), "programs": programs})
        worker = ["-m", "gemmlab.distributed.measuring", asked, str(path)]
        ended = ""
        try:
            command = [sys.executable, "-m", *launcher, *worker]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                told = [x for x in lines if "Error" in x] or lines or ["no message"]
                ended = f"the processes ended early: {told[0].strip()}"
        except subprocess.TimeoutExpired:
            ended = f"the processes had not ended after {LIMIT_S:.0f} s"
        if not path.exists():  # it is complete after each row
            raise DeviceError(ended or "the processes ended without a record")
        return json.loads(path.read_text()), ended


def table(record: Any) -> str:
    """The record as text: a line per product."""
    count, n = record["processes"], max((len(row["case"]) for row in record["rows"]), default=7)
    lines = [
        f"{count} × {record['device']}, PyTorch {record['pytorch']}",
        f"{'product':<{n}}  {'time':>8}  {'speed':>10}  {'of one':>6}  {'predicted':>9}  "
        f"{'error':>7}  by",
    ]
    for row in record["rows"]:
        if "failed" in row:
            lines.append(f"{row['case']:<{n}}  {row['by']} failed: {row['failed']}")
            continue
        share = f"{100 * row['efficiency']:.0f}%" if row["efficiency"] else "–"
        predicted = figures.seconds(row["predicted"]) if row["predicted"] else "–"
        error = f"{row['error']:.1f} u" if row["error"] is not None else "–"
        lines.append(
            f"{row['case']:<{n}}  {figures.seconds(row['seconds']):>8}  "
            f"{figures.scaled(row['speed']):>5}FLOPS  {share:>6}  {predicted:>9}  {error:>7}  "
            f"{row['by']}"
        )
    link = record["machine"]["inside"]
    lines.append(
        f"{link['name']}: {figures.seconds(link['start'])} + bytes / "
        f"({figures.scaled(link['rate'])}B/s into each)"
    )
    return "\n".join(lines) + "\n"
