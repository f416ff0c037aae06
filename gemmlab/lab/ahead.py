"""A second process that compiles the next rungs while a GPU runs and times the current one.

It saves artifacts to the disk cache, from which `compile_rung` loads them. No result depends on it:
this process compiles whatever the second one has not, and raises the compiler's errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from gemmlab import problems
from gemmlab.compile import cache
from gemmlab.compile.cute import compile_rung, is_cached
from gemmlab.core import disk_cache
from gemmlab.errors import GemmlabError, InputError
from gemmlab.kernels import ladder
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Rung
from gemmlab.lab.second import Second, asked, has_processor
from gemmlab.linalg.runtime.kernels import artifacts
from gemmlab.problems.problem import WORKSPACE


class Ahead:
    """Compiles a climb's rungs before they are needed, for one shape and one architecture.

    At the first rung that is not cached, `wait` starts a process that compiles the rungs after it,
    if there is a second processor and the cache folder is writable. A context manager: leaving it
    kills the process.
    """

    def __init__(self, rungs: Sequence[Rung], shape: Mapping[str, int], arch: str) -> None:
        self._rungs, self._shape, self._arch = rungs, shape, arch
        self._second: Second | None = None
        self._compiling = ""  # the label of the rung that it is compiling

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._second is not None:
            self._second.end()

    def wait(self, rung: Rung) -> None:
        """Wait while the second process compiles `rung`."""
        if self._second is None:
            if not is_cached(rung, self._arch):
                self._start(self._rungs[self._rungs.index(rung) + 1 :])
            return
        self._listen(0)
        if self._compiling == label(rung):
            with cache.compiling(label(rung)):
                while self._compiling == label(rung):
                    self._listen(None)

    def _start(self, rungs: Sequence[Rung]) -> None:
        """Start a process that compiles the rungs that will run and are not cached."""
        names = [ladder.reference(x) for x in missing(rungs, self._shape, self._arch) if listed(x)]
        if names and has_processor() and disk_cache.is_writable():
            with suppress(OSError):
                self._second = Second(__name__, (dict(self._shape), self._arch, names))

    def _listen(self, timeout_ms: int | None) -> None:
        assert self._second is not None
        if lines := self._second.lines(timeout_ms):
            self._compiling = lines[-1].decode()
        if self._second.has_ended:
            self._compiling = ""


def missing(rungs: Sequence[Rung], shape: Mapping[str, int], arch: str) -> Iterator[Rung]:
    """Yield the rungs that will run and are not cached."""
    for rung in rungs:
        runs = not rung.lacks(arch) and not rung.requires(rung.config, shape)
        if runs and not is_cached(rung, arch):
            yield rung


def listed(rung: Rung) -> bool:
    """Whether another process finds this rung in the ladder."""
    with suppress(InputError):
        return ladder.referred(ladder.reference(rung)) == rung
    return False


def compile_all(rung: Rung, shape: Mapping[str, int], arch: str) -> None:
    """Compile all kernels that a rung launches for a shape."""
    own = compile_rung(rung, arch)
    if rung.launches is not None:
        names = [x.name for x in (*problems.find(rung.problem).parameters, WORKSPACE)]
        for _ in artifacts(rung, shape, dict.fromkeys(names, 0), own):
            pass


def main() -> None:
    """Compile the requested rungs in order, and write each one's label before."""
    with asked() as ((shape, arch, names), answers):
        for reference in names:
            rung = ladder.referred(reference)
            print(label(rung), file=answers)
            with suppress(GemmlabError):
                compile_all(rung, shape, arch)


if __name__ == "__main__":
    main()
