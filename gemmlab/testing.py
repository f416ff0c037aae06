"""A plug-in for pytest: tests of your project's kernels, without a GPU.

    from gemmlab.testing import assert_no_races, gpu_counters

    def test_the_copy_is_coalesced(gpu_snapshot):
        found = gpu_counters("copy.cu", "n=4096")
        assert found.sectors <= 2 * 4096 * 4 // 32
        assert_no_races("copy.cu")
        gpu_snapshot(found)

A kernel is what `gemmlab.load` takes, or its Artifact. A file is launched as its directive says,
with words such as "n=4096" in place of the directive's; other kernels need `grid`, `block` and
`args`, as for `gemmlab.emulate`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gemmlab.compile.artifact import Artifact
    from gemmlab.emulator import Run

__all__ = ["Counters", "Snapshot", "assert_no_findings", "assert_no_races", "gpu_counters"]

FOLDER = "__counters__"
UPDATE = "--update-counters"
_RACES = ("races", "global-races", "order")
_LOADS, _STORES = "mem_global_op_ld.sum", "mem_global_op_st.sum"


class Counters(Mapping[str, int]):
    """The counters of one launch that are not zero, by Nsight Compute's names; 0 for the others."""

    def __init__(self, counters: Mapping[str, int]) -> None:
        self._counters = {name: value for name, value in counters.items() if value}

    def __getitem__(self, name: str) -> int:
        return self._counters.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._counters)

    def __len__(self) -> int:
        return len(self._counters)

    def __repr__(self) -> str:
        return "\n".join(f"{name} {value:,}" for name, value in self._counters.items())

    @property
    def requests(self) -> int:
        """Loads and stores of global memory, one per warp."""
        return self._sum("l1tex__t_requests_pipe_lsu_", _LOADS, _STORES)

    @property
    def sectors(self) -> int:
        """Sectors of 32 bytes that these requests move through L1."""
        return self.load_sectors + self.store_sectors

    @property
    def load_sectors(self) -> int:
        """Sectors of loads from global memory."""
        return self._sum("l1tex__t_sectors_pipe_lsu_", _LOADS)

    @property
    def store_sectors(self) -> int:
        """Sectors of stores to global memory."""
        return self._sum("l1tex__t_sectors_pipe_lsu_", _STORES)

    @property
    def shared_wavefronts(self) -> int:
        """Wavefronts of shared memory, of all operations."""
        return self["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"]

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond those that the same accesses need at least."""
        return self["derived__memory_l1_wavefronts_shared_excessive"]

    @property
    def instructions(self) -> int:
        """Machine instructions, per warp."""
        return self["smsp__inst_executed.sum"]

    @property
    def divergent_branches(self) -> int:
        """Branches at which the lanes of a warp diverge."""
        return self["ptx_branch_divergent.sum"]

    def _sum(self, start: str, *ends: str) -> int:
        return sum(self[start + end] for end in ends)


def gpu_counters(kernel: str | Path | Artifact, *words: str, **launch: Any) -> Counters:
    """Emulate a kernel once and return its counters.

    Args:
        kernel: a file, source text, the name of a rung, or an Artifact.
        words: for a file or a rung: NAME=VALUE as for `gemmlab emulate`.
        launch: `grid`, `block`, `args` and more, as for `gemmlab.emulate`.

    Raises:
        GemmlabError: as `gemmlab.load` and `gemmlab.emulate` do.
    """
    from gemmlab import sass

    artifact, run = _launched(kernel, words, launch)
    return Counters(run.counters | sass.counters(artifact, run))


def assert_no_races(kernel: str | Path | Artifact, *words: str, **launch: Any) -> None:
    """Emulate a kernel with the checks for races; arguments as for `gpu_counters`.

    Raises:
        AssertionError: threads access the same memory without an order; the message has the lines.
    """
    assert_no_findings(kernel, *words, check=_RACES, **launch)


def assert_no_findings(
    kernel: str | Path | Artifact, *words: str, check: Any = "all", **launch: Any
) -> None:
    """Emulate a kernel with all checks, or those in `check`; arguments as for `gpu_counters`.

    Raises:
        AssertionError: a check found something; the message has the lines.
    """
    __tracebackhide__ = True
    _, run = _launched(kernel, words, {**launch, "check": check})
    if run.findings:
        raise AssertionError("\n".join(str(finding) for finding in run.findings))


def _launched(
    kernel: str | Path | Artifact, words: tuple[str, ...], launch: Mapping[str, Any]
) -> tuple[Artifact, Run]:
    import gemmlab
    from gemmlab.compile import SUFFIXES, Artifact
    from gemmlab.compile.directive import parse
    from gemmlab.kernels import ladder
    from gemmlab.lab import kernel_file

    if "grid" in launch or isinstance(kernel, Artifact):
        artifact = kernel if isinstance(kernel, Artifact) else gemmlab.load(kernel)
        return artifact, gemmlab.emulate(artifact, **launch)
    given = parse(list(words))
    if str(kernel).endswith(SUFFIXES):
        done = kernel_file.run(Path(kernel), given, **launch)
    else:
        done = kernel_file.run_rung(ladder.find(str(kernel)), given, **launch)
    return done.artifact, done.run


class Snapshot:
    """Compares counters with those of the last accepted run, in a file beside the test."""

    def __init__(self, path: Path, update: bool) -> None:
        self.path, self._update, self._number = path, update, 0

    def __call__(self, counters: Mapping[str, int], name: str = "") -> None:
        """Compare; without a file, or with --update-counters, write it.

        Args:
            counters: of `gpu_counters`, or of a `Run`.
            name: for a test with several; by default their number.

        Raises:
            AssertionError: a counter differs; the message has a table.
        """
        __tracebackhide__ = True
        self._number += 1
        key = name or str(self._number)
        known: dict[str, dict[str, int]] = {}
        if self.path.exists():
            known = json.loads(self.path.read_text(encoding="utf-8"))
        now = {counter: int(value) for counter, value in counters.items() if value}
        if self._update or key not in known:
            self.path.parent.mkdir(exist_ok=True)
            text = json.dumps(known | {key: now}, indent=1, sort_keys=True)
            self.path.write_text(f"{text}\n", encoding="utf-8")
        elif told := difference(known[key], now):
            raise AssertionError(f"{told}\naccept it with {UPDATE}; stored in {self.path}")


def difference(old: Mapping[str, int], new: Mapping[str, int]) -> str:
    """Return a table of the counters that differ, the largest change first; "" if none does."""
    rows = [
        (name, old.get(name, 0), new.get(name, 0))
        for name in {**old, **new}
        if old.get(name, 0) != new.get(name, 0)
    ]
    if not rows:
        return ""
    rows.sort(key=lambda row: -abs(row[2] - row[1]) / max(row[1], row[2]))
    cells = [("counter", "stored", "now", "")]
    for name, was, now in rows:
        cells.append((name, f"{was:,}", f"{now:,}", f"×{now / was:.3g}" if was else "new"))
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in cells
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-counters."""
    group = parser.getgroup("gemmlab")
    group.addoption(UPDATE, action="store_true", help="Accept the counters of `gpu_snapshot`.")


@pytest.fixture
def gpu_snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """A function that compares counters with the stored ones: `gpu_snapshot(gpu_counters(…))`."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    path = request.path.parent / FOLDER / f"{request.path.stem}.{name}.json"
    return Snapshot(path, bool(request.config.getoption(UPDATE)))
