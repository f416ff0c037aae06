"""At which instructions the warps of every rung are, and why, by Nsight Compute. A minute.

    python -m benchmarks stalls gemmlab/lab/explain/stalls-h200.json

`gemmlab explain`, `show` and `report` show the readings. Each belongs to one version of the machine
code and is found by its bits: measure again after a kernel has changed. Needs ncu.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase

from benchmarks import ncu, rungs
from benchmarks.children import command
from benchmarks.gpu import Gpu
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Row
from gemmlab.compile.cute import compile_rung
from gemmlab.lab.explain.stalls import NONE, digest
from gemmlab.timing.facts import disassemble

SIZES: dict[str, list[tuple[int, ...]]] = {
    "gemm": [(4096, 4096, 4096)],
    "transpose": [(8192, 8192)],
    "sum": [(2**26,)],
    "histogram": [(2**26,)],
    "softmax": [(8192, 2048)],
    "layernorm": [(8192, 2048)],
    "scan": [(8192, 2048)],
    "conv2d": [(4096, 4096)],
    "attention": [(4096,)],
}
PREFIX = "smsp__pcsamp_warps_issue_stalled_"
REASONS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle"),
    *("long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "misc"),
    *("no_instructions", "not_selected", "selected", "short_scoreboard", "sleeping"),
    *("tex_throttle", "wait", "warpgroup_arrive"),
)
_INSTANCE = re.compile(r"(0x[0-9a-f]+): (\d+)")

Samples = Mapping[str, Mapping[int, int]]  # reason -> address -> samples


def chosen(word: str = "") -> Iterator[rungs.Launch]:
    return rungs.launches(SIZES, ("row",), all_families=False, word=word)


def launch(word: str) -> None:
    rungs.run(Gpu(), chosen(word))


def readings(gpu: Gpu, word: str = "") -> Iterator[Row]:
    names = ",".join(PREFIX + reason for reason in REASONS)
    with tempfile.TemporaryDirectory() as folder:
        report = str(Path(folder) / "stalls.ncu-rep")
        take = ("--clock-control", "none", "--profile-from-start", "off", "--metrics", names)
        ncu.run("-o", report, *take, *command("stalls", "launch", word))
        read = ("--import", report, "--csv", "--metrics", names)
        details = ncu.run(*read, "--page", "raw", "--print-metric-instances", "details")
        source = ncu.run(*read, "--page", "source")
    found = zip(chosen(word), reasons(details), addresses(source), strict=True)
    for one, samples, listed in found:
        artifact = compile_rung(one.rung, gpu.device.arch)
        assert artifact.cubin
        code = disassemble(artifact.cubin, artifact.entry).instructions
        kept = {name: one.row()[name] for name in ("problem", "rung", "layout", "shape")}
        yield kept | {"words_sha256": digest(code)} | reading(samples, listed[: len(code)])


def reasons(text: str) -> list[Samples]:
    """The samples of each kernel, from the raw page with the instances of metrics."""
    table = [line for line in text.splitlines() if line.startswith('"')]
    _units, *rows = csv.DictReader(table)
    return [
        {
            reason: {int(at, 16): int(n) for at, n in _INSTANCE.findall(row[PREFIX + reason])}
            for reason in REASONS
            if row.get(PREFIX + reason)
        }
        for row in rows
    ]


def addresses(text: str) -> list[list[int]]:
    """The addresses of each kernel's instructions, from the source page."""
    found: list[list[int]] = []
    for row in csv.reader(text.splitlines()):
        if row[:1] == ["Kernel Name"]:
            found.append([])
        elif row and row[0].startswith("0x"):
            found[-1].append(int(row[0], 16))
    return found


def reading(samples: Samples, listed: Sequence[int]) -> Row:
    """Samples per reason and per instruction, and the letter of each instruction's main reason."""
    sums = {reason: sum(own.values()) for reason, own in samples.items()}
    order = sorted((reason for reason in sums if sums[reason]), key=lambda reason: -sums[reason])
    totals, letters = [], []
    for address in listed:
        own = [samples[reason].get(address, 0) for reason in order]
        totals.append(sum(own))
        letters.append(ascii_lowercase[own.index(max(own))] if totals[-1] else NONE)
    ordered = {reason: sums[reason] for reason in order}
    return {"reasons": ordered, "samples": totals, "main": "".join(letters)}


def head(gpu: Gpu) -> Row:
    tool = f"Nsight Compute {ncu.version()}, program counters sampled, --clock-control none"
    row = {**gpu.facts(), "tool": tool, "arch": gpu.device.arch}
    return row | {"units": "samples of resident warps"}


SAME = ("problem", "rung", "layout")
MEASUREMENT = Measurement(parts={"readings": Rows(readings, SAME, named=True)}, head=head, depth=2)
