"""A second process that compiles the next rungs while this process runs the current one.

The child saves artifacts to the disk cache, from which `compile_rung` loads them. No result depends
on the child: this process compiles whatever the child has not, and raises the compiler's errors.
The child compiles in the order of the rungs. If this process must wait for it, it compiles the last
rung meanwhile, so that both processors have work until all is compiled. Then the child saves, from
the last rung back to the current one, what emulating a rung takes besides: the listings of its
machine code, and native code.
The child is a new Python, not a fork, so it does not inherit a CUDA context.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from gemmlab import problems
from gemmlab.compile import cache
from gemmlab.compile.artifact import Artifact
from gemmlab.compile.cute import compile_rung, is_cached
from gemmlab.core import disk_cache, processes, scratch
from gemmlab.cubin import tools
from gemmlab.emulator import tiers
from gemmlab.errors import GemmlabError, InputError
from gemmlab.kernels import ladder
from gemmlab.kernels.ladder import label
from gemmlab.kernels.rung import Dim3, Rung
from gemmlab.linalg.runtime.kernels import artifacts
from gemmlab.problems.problem import WORKSPACE


class Ahead:
    """Compiles a climb's rungs before they are needed, for one shape and one architecture.

    At the first rung that is not cached, `wait` starts a child that compiles the rungs after it.
    It starts no child if the process may use only one processor or if the cache folder is not
    writable. `tier`: of the emulator that runs the rungs; None: a GPU runs them. A context manager:
    leaving it kills the child.
    """

    def __init__(
        self, rungs: Sequence[Rung], shape: Mapping[str, int], arch: str, tier: str | None
    ) -> None:
        self._rungs, self._shape, self._arch, self._tier = rungs, shape, arch, tier
        self._child: subprocess.Popen[bytes] | None = None
        self._compiling = ""  # the label of the rung that the child is compiling
        self._unread = b""  # the beginning of the child's next line

    def __enter__(self) -> Ahead:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if (child := self._child) is None:
            return
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
        scratch.sweep()

    def wait(self, rung: Rung) -> None:
        """If the child is compiling `rung`, compile other rungs until it has finished."""
        if self._child is None:
            if not is_cached(rung, self._arch):
                self._start(self._rungs[self._rungs.index(rung) + 1 :])
            return
        self._listen(0)
        if self._compiling == label(rung):
            with cache.compiling(label(rung)):
                while self._compiling == label(rung):
                    is_helping = self._help(rung)
                    self._listen(0 if is_helping else None)

    def _help(self, current: Rung) -> bool:
        """Compile the last rung that is not cached. Return whether there was one that the child,
        which compiles `current`, does not reach soon."""
        later = self._missing(reversed(self._rungs[self._rungs.index(current) + 1 :]))
        last, before = next(later, None), next(later, None)
        if last is None or before is None:
            return False
        with suppress(GemmlabError):  # raised again when its turn comes
            compile_all(last, self._shape, self._arch)
        return is_cached(last, self._arch)

    def _missing(self, rungs: Iterable[Rung]) -> Iterator[Rung]:
        """Yield the rungs that will run and are not cached."""
        for rung in rungs:
            runs = not rung.lacks(self._arch) and not rung.requires(rung.config, self._shape)
            if runs and not is_cached(rung, self._arch):
                yield rung

    def _start(self, rungs: Sequence[Rung]) -> None:
        """Start a child that compiles the rungs that will run and are not cached."""
        names = [ladder.reference(rung) for rung in self._missing(rungs) if _is_listed(rung)]
        if not names or len(os.sched_getaffinity(0)) < 2 or not disk_cache.is_writable():
            return
        request = json.dumps([os.getpid(), self._arch, dict(self._shape), self._tier, names])
        # The child inherits the signal mask, so Ctrl-C interrupts only this process.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            with suppress(OSError):
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__, request],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    env=processes.environment(),
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _listen(self, timeout_ms: int | None) -> None:
        """Read the child's output, waiting up to `timeout_ms` for it; None: no limit."""
        assert self._child is not None and self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        said = select.poll()
        said.register(pipe, select.POLLIN)
        if said.poll(timeout_ms):
            data = os.read(pipe, 2**16)
            *lines, self._unread = (self._unread + data).split(b"\n")
            if lines:
                self._compiling = lines[-1].decode()
            if not data:  # the child has exited
                self._compiling = ""


def _is_listed(rung: Rung) -> bool:
    """Whether the child would find this rung in the ladder."""
    with suppress(InputError):
        return ladder.referred(ladder.reference(rung)) == rung
    return False


def main(request: str) -> None:
    """Compile the requested rungs in order, printing each one's label before; then prepare them."""
    parent, arch, shape, tier, names = json.loads(request)
    processes.die_with_parent(parent)
    rungs = [ladder.referred(reference) for reference in names]
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # keep compiler output out of the answers
        for rung in rungs:
            print(label(rung), file=answers)
            with suppress(GemmlabError):
                compile_all(rung, shape, arch)
        print(file=answers)
    if tier is not None:
        for rung in reversed(rungs):
            with suppress(GemmlabError):
                prepare(rung, shape, arch, tier)


def compile_all(rung: Rung, shape: Mapping[str, int], arch: str) -> None:
    """Compile all kernels that a rung launches for a shape."""
    for _ in _launches(rung, shape, arch):
        pass


def prepare(rung: Rung, shape: Mapping[str, int], arch: str, tier: str) -> None:
    """Save the listings of a rung's machine code, and its kernel's native code if that will run."""
    for artifact, block, cluster in _launches(rung, shape, arch):
        if artifact.cubin is not None:
            tools.sass(artifact.cubin, artifact.entry)
        if artifact.origin == label(rung) and cluster == 1 and tier != "numpy":
            tiers.compile_ahead(artifact.ptx, artifact.entry, block, work(rung, shape))


def work(rung: Rung, shape: Mapping[str, int]) -> int:
    """Return how many thread-instructions the emulator executes at least to run a rung's kernel."""
    return problems.find(rung.problem).flops(shape) // 2  # one per multiply-add


def _launches(
    rung: Rung, shape: Mapping[str, int], arch: str
) -> Iterator[tuple[Artifact, Dim3, int]]:
    """Compile the kernels that a rung launches for a shape; yield each with block and cluster."""
    own = compile_rung(rung, arch)
    if rung.launches is None:
        yield own, rung.geometry(rung.config, shape).block, 1
        return
    names = [x.name for x in (*problems.find(rung.problem).parameters, WORKSPACE)]
    for artifact, launch in artifacts(rung, shape, dict.fromkeys(names, 0), own):
        yield artifact, launch.block, launch.cluster


if __name__ == "__main__":
    main(sys.argv[1])
