"""Planted bugs and correct kernels under compute-sanitizer. Three minutes of GPU time.

    python -m benchmarks sanitizer tests/readings/sanitizer.json

Needs nvcc and compute-sanitizer of CUDA 13. Several kernels share the GPU; a hanging one is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.children import ROOT
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab.lab.directives import read
from gemmlab.lab.directives.call import prepare
from gemmlab.report.markdown import table

KERNELS = ROOT / "tests" / "emulator"
HOST = Path(__file__).with_name("sanitizer_host.cu")
TOOLS = {
    "memcheck": [],
    "racecheck": ["--racecheck-report", "all"],
    "initcheck": [],
    "synccheck": [],
}
FLAGS = ("-arch=sm_90a", "-lineinfo")
SECONDS = 25
AT_ONCE = 12
MARK = re.compile(r"// expect: (.*)")
REPORT = re.compile(
    r"========= (?:Error: |Warning: )?((?:\(Warp Level Programming\) )?"
    r"(?:Potential \w+ hazard detected(?: \([^)]*\))?|Barrier error detected\. [^\n]*"
    r"|Invalid __\w+__ \w+ of size \d+ bytes|Uninitialized __\w+__ memory read[^\n]*))"
)
ABOUT = (
    "tests/emulator/{planted,correct} under each tool, 25 s at most. bug, line: what is planted, "
    "and where. alone: how the launch ended with no tool. A tool's entry: what it reported, how "
    "often, and the source lines it named among the last reports; {} for nothing, "
    '"hangs" where it said nothing until it was stopped.'
)


def build(path: Path, folder: Path) -> None:
    """Write the cubin of one kernel, its plan and its arrays."""
    folder.mkdir()
    flags = [*FLAGS, "-cubin", "-o", str(folder / "k.cubin")]
    subprocess.run(["nvcc", *flags, str(path)], check=True, capture_output=True)
    directive = read(path.read_text())
    call = prepare(directive)
    plan: list[object] = [*call.grid, *call.block, call.smem]
    for number, (word, arg) in enumerate(zip(directive.args, call.args, strict=True)):
        if not isinstance(arg, np.ndarray):
            plan += ["int", arg]
        elif word.endswith("=empty"):
            plan += ["empty", arg.nbytes]
        else:
            (folder / f"{number}").write_bytes(arg.tobytes())
            plan += [number, arg.nbytes]
    (folder / "plan.txt").write_text(" ".join(map(str, plan)))


def run(command: list[str]) -> str | None:
    """The output of a command; None if it was killed."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def alone(text: str | None) -> str:
    if text is None:
        return "hangs"
    failed = re.search(r"error (\w+)", text)
    return failed[1] if failed else "ends"


def reported(text: str | None, path: Path) -> Row | str:
    if text is None:
        return "hangs"
    races = re.search(r"RACECHECK SUMMARY: .*\((\d+) errors?, (\d+) warning", text)
    others = re.search(r"ERROR SUMMARY: (\d+)", text)
    summary = races or others
    count = sum(map(int, summary.groups())) if summary else 0
    kinds = sorted(set(REPORT.findall(text)))
    if not count or not kinds:
        return {}
    lines = sorted({int(x) for x in re.findall(rf"in {path.name}:(\d+)", text)})
    return {"count": count, "reports": [kind.strip() for kind in kinds], "lines": lines}


def kernels(gpu: Gpu) -> Iterator[Row]:
    paths = sorted([*KERNELS.glob("planted/*.cu"), *KERNELS.glob("correct/*.cu")])
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(AT_ONCE) as pool:
        host = Path(name) / "host"
        subprocess.run(["nvcc", "-o", str(host), str(HOST), "-lcuda"], check=True)
        yield from pool.map(partial(kernel, host), paths)


def kernel(host: Path, path: Path) -> Row:
    """How one kernel ends, and what each tool reports."""
    folder = host.parent / f"{path.parent.name}-{path.stem}"
    build(path, folder)
    launch = [str(host), str(folder)]
    bug, line = planted(path.read_text())
    row: Row = {"file": f"{path.parent.name}/{path.name}", "bug": bug, "line": line}
    row["alone"] = alone(run(launch))
    for tool, flags in TOOLS.items():
        sanitizer = ["compute-sanitizer", "--tool", tool, "--print-limit", "20", *flags]
        row[tool] = reported(run([*sanitizer, *launch]), path)
    return row


def planted(source: str) -> tuple[str | None, int | None]:
    """The bug in a source and its line, if there is one."""
    for number, text in enumerate(source.splitlines(), 1):
        if mark := MARK.search(text):
            return mark[1], number
    return None, None


def head(gpu: Gpu) -> Row:
    version = re.search(r"Version (\S+)", run(["compute-sanitizer", "--version"]) or "")
    tool = f"compute-sanitizer {version[1] if version else ''}; kernels by nvcc {' '.join(FLAGS)}"
    return {**gpu.facts(), "tool": tool, "about": ABOUT}


def names_it(kernel: Row, tool: str) -> bool:
    """Whether a tool named the planted line."""
    report = kernel[tool]
    return report not in ({}, "hangs") and kernel["line"] in report["lines"]


def summary(record: Row) -> dict[str, str]:
    """How many kernels with each kind of bug there are, and in how many a tool named its line."""
    found = [kernel for kernel in record["kernels"] if kernel["bug"]]
    kinds = {kind: [k for k in found if k["bug"] == kind] for kind in {k["bug"] for k in found}}
    rows = [
        [kind, str(len(some)), *(str(sum(names_it(k, tool) for k in some)) for tool in TOOLS)]
        for kind, some in [*sorted(kinds.items()), ("all", found)]
    ]
    return {"sanitizer": table(["planted", "kernels", *TOOLS], rows)}


MEASUREMENT = Measurement(
    parts={"kernels": Rows(kernels, ("file",))},
    head=head,
    pages={"checks.md": summary},
    depth=2,
)
