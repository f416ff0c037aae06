"""Selection of the tier, the disk cache, and faults of native code."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import needs_native
from snippets import ptx

import gemmlab
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.emulator import run, tiers
from gemmlab.emulator.native import code, ufuncs
from gemmlab.emulator.native.builder import Module
from gemmlab.emulator.native.code import _runtime_library
from gemmlab.emulator.native.tracer import Tracer
from gemmlab.emulator.native.values import NotCovered
from gemmlab.errors import (
    DeadlockError,
    EmulationError,
    InternalError,
    TierError,
    UnknownNameError,
)
from gemmlab.ptx.parser import MODULES

# Adds 1 to each element %r1 times.
LOOP = """
ld.param.u64 %q0, [p0]; ld.param.u32 %r1, [p1]; mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x; mad.lo.u32 %r2, %r3, %r4, %r2; mad.wide.u32 %q1, %r2, 4, %q0;
ld.global.f32 %f1, [%q1]; L: add.f32 %f1, %f1, 0f3F800000; sub.u32 %r1, %r1, 1;
setp.ne.u32 %p1, %r1, 0; @%p1 bra L; st.global.f32 [%q1], %f1; ret;"""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache."""
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    MODULES.clear()
    tiers._executed.clear()


def loop(times: int, tier: str = "auto", threads: int = 64) -> tuple[np.ndarray, str]:
    x = np.zeros(threads, np.float32)
    text = ptx(LOOP, ["u64", "u32"])
    used = run(text, "k", (threads // 64, 1, 1), (64, 1, 1), [x, times], tier=tier).tier
    return x, used


def test_unknown_tiers_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="auto, numpy, native"):
        loop(1, "fast")
    with pytest.raises(UnknownNameError, match="no tier 'fast'"):
        EmulatedDevice(tier="fast")


@needs_native
def test_auto_changes_over_when_a_launch_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "WORTH_COMPILING", 5000)
    assert loop(10)[1] == "numpy"
    x, used = loop(1000)
    # Effects of the abandoned NumPy run are undone.
    assert used == "native" and (x == 1000).all()
    assert loop(10)[1] == "native"  # compiled by the launch before


@needs_native
def test_auto_changes_over_when_launches_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "WORTH_COMPILING", 5000)
    used = [loop(10)[1] for _ in range(3)]
    assert used[0] == "numpy" and used[-1] == "native"


@needs_native
def test_auto_stays_with_numpy_where_native_code_does_not_cover_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise NotCovered("guards")

    monkeypatch.setattr(tiers, "WORTH_COMPILING", 1)
    monkeypatch.setattr(Tracer, "count_guarded", refuse)
    x, used = loop(10)
    assert used == "numpy" and (x == 10).all()
    with pytest.raises(TierError, match=r"does not cover bra: guards\n.*PTX line \d+: .*bra L"):
        loop(10, "native")


@needs_native
@pytest.mark.parametrize("tier", ["auto", "native"])
@pytest.mark.parametrize("error", [AttributeError, TypeError, IndexError, ValueError, KeyError])
def test_a_bug_of_the_native_tier_is_no_slow_launch(
    monkeypatch: pytest.MonkeyPatch, tier: str, error: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise error("a slip")

    monkeypatch.setattr(tiers, "WORTH_COMPILING", 1)
    monkeypatch.setattr(Tracer, "count_guarded", fail)
    where = r"fails at bra, .*a slip.*tier='numpy'.*\n.*PTX line \d+: .*bra L"
    with pytest.raises(InternalError, match=where):
        loop(10, tier)
    assert (loop(10, "numpy")[0] == 10).all()


@needs_native
def test_ir_that_llvm_refuses_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ufuncs.UFUNCS, "subtract", ufuncs._plain("subtract", "fsub"))
    with pytest.raises(InternalError, match=r"LLVM rejects(.|\n)*expected instruction opcode"):
        loop(10, "native")


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda x: int(x), "a Python number"),
        (lambda x: len(x), "a Python number"),
        (lambda x: bool(x), "a Python decision"),
        (lambda x: np.arange(9)[x], "an array made from"),
        (lambda x: x[0], "indexing of lanes"),
        (lambda x: np.array([x, x]), "an array made from"),
        (lambda x: x.reshape(-1), "reshape"),
        (lambda x: x + np.arange(4), "type ndarray"),
        (lambda x: np.where(np.arange(4) < 2, x, x), "type ndarray"),
        (lambda x: np.cumsum(x), "cumsum"),
        (lambda x: np.hypot(x, x), "hypot"),
        (lambda x: x.view(np.uint8), "another element width"),
    ],
)
def test_what_only_arrays_can_do_is_refused(use: Callable[[Any], object], why: str) -> None:
    f = Module().function("f", "void", {"x": "i32"})
    with pytest.raises(NotCovered, match=why):
        use(f.argument("x", np.dtype(np.uint32)))


def test_what_nothing_can_do_is_a_bug() -> None:
    x: Any = Module().function("f", "void", {"x": "i64"}).argument("x", np.dtype(np.int64))
    with pytest.raises(AttributeError):
        _ = x.dtpye
    with pytest.raises(TypeError, match="int64 and uint64 rounds"):
        x + np.uint64(1)


@pytest.mark.parametrize("reason", ["llvmlite is not installed", "the processor lacks fma"])
def test_without_native_code_numpy_runs_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    monkeypatch.setattr(tiers, "WORTH_COMPILING", 5000)
    monkeypatch.setattr(tiers, "missing", lambda: reason)
    tiers._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert loop(10)[1] == "numpy"
        assert not caplog.records  # nothing is logged for a short launch
        for _ in range(2):
            x, used = loop(1000)
            assert used == "numpy" and (x == 1000).all()
    assert [r.getMessage() for r in caplog.records] == [
        f"a long launch runs on the emulator's NumPy tier: {reason}"
    ]
    with pytest.raises(TierError, match=f"no native tier: {reason}"):
        loop(1, "native")


@needs_native
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "flipped"])
def test_damaged_code_is_compiled_again(tmp_path: Path, damage: str) -> None:
    assert (loop(3, "native")[0] == 3).all()
    files = [path for path in tmp_path.iterdir() if path.suffix == ".fast"]
    assert len(files) == 1
    for path in files:
        data = path.read_bytes()
        middle = len(data) // 2
        broken = {"half": data[:middle], "empty": b""}
        broken["flipped"] = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.unlink() if damage == "missing" else path.write_bytes(broken[damage])
    MODULES.clear()
    assert (loop(4, "native")[0] == 4).all()
    assert files[0].read_bytes() == data


@needs_native
@pytest.mark.slow
def test_compiled_code_is_found_by_another_process() -> None:
    _runtime_library.cache_clear()  # so that it is written to disk, too
    loop(1, "native")
    compile_nothing = (
        "from gemmlab.emulator.native import code\n"
        "def build(*_, **__): raise AssertionError('compiled again')\n"
        "code.build = build\n"
        "import numpy as np; from gemmlab.emulator import run\n"
        f"x = np.zeros(64, np.float32); r = run({ptx(LOOP, ['u64', 'u32'])!r}, 'k', (1, 1, 1),"
        " (64, 1, 1), [x, 7]); print(r.tier, x[5])"
    )
    done = subprocess.run(
        [sys.executable, "-c", compile_nothing], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["native", "7.0"]


# Sums of a loop whose lanes leave it one by one, so that a slow function runs, too.
DIVERGENT = """ld.param.u64 %q0, [p0]; ld.param.u32 %r1, [p1]; mov.u32 %r2, %tid.x;
add.u32 %r1, %r1, %r2; mul.wide.u32 %q1, %r2, 4; add.u64 %q1, %q0, %q1; mov.f32 %f1, 0f00000000;
L: fma.rn.f32 %f1, %f1, 0f3F7F0000, 0f3F800000; sub.u32 %r1, %r1, 1;
setp.ne.u32 %p1, %r1, 0; @%p1 bra L; st.global.f32 [%q1], %f1; ret;"""


@needs_native
def test_code_that_runs_long_is_optimized_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = []
    for seconds in (float("inf"), 0.0):
        monkeypatch.setattr(code, "WORTH_OPTIMIZING_S", seconds)
        MODULES.clear()
        x = np.zeros(64, np.float32)
        text = ptx(DIVERGENT, ["u64", "u32"])
        result = run(text, "k", (64, 1, 1), (64, 1, 1), [x, 20_000], tier="native")
        found.append((x.tobytes(), result.counters))
        kinds = sorted(path.suffix for path in tmp_path.iterdir() if path.suffix != ".o")
        optimized = [".fast-optimized", ".slow-optimized"] if seconds == 0 else []
        assert [kind for kind in kinds if "optimized" in kind] == optimized
    assert found[0] == found[1]
    assert np.frombuffer(found[0][0], np.float32)[5] == pytest.approx(256, rel=1e-3)


@needs_native
def test_optimized_code_on_disk_is_preferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(code, "WORTH_OPTIMIZING_S", 0.0)
    loop(3, "native")
    for path in tmp_path.glob("*.fast"):
        path.unlink()
    MODULES.clear()
    monkeypatch.setattr(code, "build", None)
    assert (loop(4, "native")[0] == 4).all()


@needs_native
def test_code_of_very_long_blocks_is_optimized_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Quick code would need much of the stack."""
    monkeypatch.setattr(code, "LONGEST_QUICK_TEXT", 100)
    assert (loop(3, "native")[0] == 3).all()
    assert [path.suffix for path in tmp_path.glob("*.fast*")] == [".fast-optimized"]


@needs_native
def test_threads_of_the_host_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmlab.emulator.native import launch

    found = []
    for threads in (1, 3):
        monkeypatch.setattr(launch, "host_threads", lambda threads=threads: threads)
        x = np.arange(64 * 37, dtype=np.float32)
        result = run(ptx(LOOP, ["u64", "u32"]), "k", (37, 1, 1), (64, 1, 1), [x, 50], tier="native")
        found.append((x.tobytes(), result.counters))
    assert found[0] == found[1]


@needs_native
def test_blocks_may_wait_for_later_ones() -> None:
    """As in a grid-wide barrier."""
    x = np.zeros(2, np.uint32)
    body = (
        "ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra OUT;"
        "atom.global.add.u32 %r2, [%q0], 1; WAIT: ld.volatile.global.u32 %r3, [%q0];"
        "setp.lt.u32 %p2, %r3, 3; @%p2 bra WAIT; red.global.add.u32 [%q0+4], 1; OUT: ret;"
    )
    run(ptx(body, ["u64"]), "k", (3, 1, 1), (32, 1, 1), [x], tier="native")
    assert x.tolist() == [3, 3]


@needs_native
def test_warps_may_wait_for_each_other() -> None:
    x = np.zeros(64, np.uint32)
    body = (
        ".shared .align 4 .b8 s[4]; ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x;"
        "setp.ge.u32 %p1, %r1, 32; @%p1 bra LATER; WAIT: ld.volatile.shared.u32 %r2, [s];"
        "setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT; bra OUT;"
        "LATER: mov.u32 %r2, 9; st.volatile.shared.u32 [s], %r2;"
        "OUT: mad.wide.u32 %q1, %r1, 4, %q0; st.global.u32 [%q1], %r2; ret;"
    )
    run(ptx(body, ["u64"]), "k", (1, 1, 1), (64, 1, 1), [x], tier="native")
    assert x.tolist() == [9] * 64


# Faults

INDEX = (
    "ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.wide.u32 %q1, %r1, 4,"
    "%q0; mov.u64 %q2, s; mad.wide.u32 %q3, %r1, 4, %q2; setp.ne.u32 %p1, %r2, 1; @%p1 bra OUT;"
    "setp.ge.u32 %p2, %r1, 37;"
)
FAULTS = {
    "past an allocation": "ld.global.u32 %r3, [%q1+256];",
    "before an allocation": "st.global.u32 [%q1-8], %r3;",
    "guarded": "@%p2 ld.global.u32 %r3, [%q1+4096];",
    "address 0": "mov.u64 %q4, 0; ld.global.u32 %r3, [%q4];",
    "one address for all": "ld.global.u32 %r3, [%q0+1024];",
    "misaligned": "and.b64 %q4, %q1, -8; ld.global.u32 %r3, [%q4+2];",
    "misaligned vector": "ld.global.v2.u32 {%r3, %r4}, [%q0+4];",
    "atomic": "atom.global.add.u32 %r3, [%q1+1024], 1;",
    "shared": "ld.shared.u32 %r3, [%q3+200];",
    "shared store": "@%p2 st.shared.v4.u32 [%q3+1024], {%r1, %r1, %r1, %r1};",
    "shared atomic": "and.b64 %q4, %q3, -8; atom.shared.cas.b32 %r3, [%q4+1], 0, 1;",
    "32-bit address": "cvt.u32.u64 %r5, %q3; sub.u32 %r5, %r5, 64; ld.shared.u32 %r3, [%r5];",
    "local": "mov.u64 %q4, m; st.local.u32 [%q4+16], %r1;",
    "generic": "cvta.shared.u64 %q4, %q3; ld.u32 %r3, [%q4+512];",
    "generic global": "ld.u32 %r3, [%q1+1024];",
    "no window": "mov.u64 %q4, 0x0100000000000000; ld.u32 %r3, [%q4];",
    "atomic on local memory": "cvta.local.u64 %q4, 0; atom.add.u32 %r3, [%q4], 1;",
    "parameters": "mul.wide.u32 %q4, %r1, 8; ld.param.u64 %q5, [%q4];",
    "trap": "@%p2 trap;",
    "switch": "T: .branchtargets A, B; A: B: brx.idx %r1, T;",
    "unknown": "@%p2 suq.width.b32 %r3, [%q0];",
    "barrier": "bar.sync %r1;",
    "barrier count": "bar.sync 1, %r1;",
    "deadlock": "@%p2 bar.sync 1, 64;",
    "deadlock of two": "@%p2 bra B; bar.sync 2; bra OUT; B: bar.sync 3;",
    "copy past an allocation": "mov.u32 %r6, 0; cp.async.ca.shared.global [%r6], [%q1+250], 4;",
    "copy of too much": "mov.u32 %r6, 0; cp.async.ca.shared.global [%r6], [%q0], 4, %r1;",
    "copy past shared memory": "@%p2 cp.async.cg.shared.global [%q3+512], [%q0], 16;",
    "misaligned copy": "@%p2 cp.async.ca.shared.global [%q3+4], [%q0], 8;",
    "copy from an odd address": "cp.async.ca.shared.global [%q3], [%q0+2], 4;",
    "row past shared memory": "mov.u32 %r6, 256; @%p2 ldmatrix.sync.aligned.m8n8.x2.shared.b16"
    "{%r3, %r4}, [%r6];",
    "row at an odd address": "setp.lt.u32 %p3, %r1, 32;"
    "@%p3 stmatrix.sync.aligned.m8n8.x4.shared.b16 [%q3], {%r3, %r4, %r5, %r6};",
    "matrix past an allocation": "wmma.load.c.sync.aligned.row.m16n16k16.global.f32"
    "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%q0];",
    "matrix at an odd address": "wmma.load.c.sync.aligned.row.m16n16k16.global.f32"
    "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%q1];",
    "matrix with an odd stride": "mov.u32 %r6, 17; wmma.store.d.sync.aligned.row.m16n16k16.f32"
    "[%q2], {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, %r6;",
    "in a parted warp": "@%p2 bra B; bra OUT; B: st.global.u32 [%q1+1024], %r1;",
}


@needs_native
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_those_of_the_numpy_tier(fault: str) -> None:
    declared = ".shared .align 16 .b8 s[256]; .local .align 8 .b8 m[16];"
    text = ptx(f"{declared} {INDEX} {FAULTS[fault]} OUT: ret;", ["u64"])
    caught: list[tuple[Any, ...]] = []
    for tier in ("numpy", "native"):
        x = np.zeros(64, np.uint32)
        with pytest.raises(EmulationError) as error:
            run(text, "k", (3, 1, 1), (64, 1, 1), [x], tier=tier)
        e = error.value
        assert not x.any()
        message = str(e).split(" (and ")[0].split(", block")[0]
        caught.append((type(e), e.site, e.block, e.thread, e.address, message))
    numpy_fault, native_fault = caught
    if fault.startswith("deadlock"):  # the NumPy tier lists all resident blocks
        numpy_fault, native_fault = numpy_fault[:4], native_fault[:4]
        assert numpy_fault[0] is DeadlockError
    assert native_fault == numpy_fault


@needs_native
def test_the_first_block_at_fault_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmlab.emulator.native import launch

    monkeypatch.setattr(launch, "host_threads", lambda: 4)
    body = (
        "mov.u32 %r1, %ctaid.x; setp.lt.u32 %p1, %r1, 20; mov.u32 %r2, 400; sub.u32 %r2, %r2, %r1;"
        "L: sub.u32 %r2, %r2, 1; setp.gt.s32 %p2, %r2, 0; @%p2 bra L; @!%p1 trap; ret;"
    )
    with pytest.raises(EmulationError, match="trap") as error:
        run(ptx(body), "k", (64, 1, 1), (32, 1, 1), [], tier="native")
    assert error.value.block == (20, 0, 0)


CUDA = """
extern "C" __global__ void early(const float *x, float *y, int n) {
    int i = threadIdx.x;
    if (i >= n - blockDim.x * blockIdx.x) return;
    y[blockIdx.x * blockDim.x + i] = x[i];
    __syncthreads();
    y[blockIdx.x * blockDim.x + i] += x[i / 2];
}
extern "C" __global__ void softmax(const float *x, float *y, int n) {
    __shared__ float part[8];
    const float *row = x + blockIdx.x * n;
    float s = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += __expf(row[i]) + sinf(row[i]);
    for (int k = 16; k; k >>= 1) s += __shfl_xor_sync(~0u, s, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    float total = 0.0f;
    for (int k = 0; k < blockDim.x / 32; k++) total += part[k];
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = row[i] / total;
}
extern "C" __global__ void chain(const double *x, double *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    long long steps = 0;
    while (v > 1.0 && steps < 60) { v = v * 0.75 - 1.0 / v; steps++; }
    y[i] = v + (double)steps + sqrt(fabs(v)) + (float)(i / 7 % 3);
}
"""


@needs_native
@pytest.mark.parametrize(
    ("entry", "shape", "type_", "block"),
    [
        ("early", (1, 200), "f4", 128),
        ("softmax", (5, 700), "f4", 128),
        ("chain", (1, 1000), "f8", 96),
    ],
)
@pytest.mark.slow
def test_cuda_kernels(
    tmp_path: Path, entry: str, shape: tuple[int, int], type_: str, block: int
) -> None:
    path = tmp_path / "kernels.cu"
    path.write_text(CUDA)
    artifact = gemmlab.load(path, entry=entry)
    x = np.random.default_rng(1).uniform(0.1, 30, shape).astype(type_)
    grid = shape[0] if entry == "softmax" else -(-shape[1] // block)
    found = []
    for tier in ("numpy", "native"):
        y = np.zeros_like(x)
        result = gemmlab.emulate(artifact, grid=grid, block=block, args=[x, y, shape[1]], tier=tier)
        found.append((y.tobytes(), result.counters))
    assert found[0] == found[1]


@needs_native
def test_an_exception_of_a_signal_is_not_lost_in_an_instruction_that_python_executes() -> None:
    """Native code calls Python for most instructions of this loop: raised where Python begins, the
    exception would be dropped, and the instruction skipped."""
    body = "mov.u32 %r1, 0; L: add.rp.f64 %g1, %g1, 0d3FF0000000000000; add.u32 %r1, %r1, 1;"
    body += "setp.lt.u32 %p1, %r1, 1000000; @%p1 bra L;"

    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Alarm):
                run(ptx(body), "k", (1, 1, 1), (32, 1, 1), [], tier="native")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_threads_that_load_a_library_at_once_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of one that nothing refers to is freed, even while it runs."""
    made = []

    class Library:
        def __init__(self, *_: object) -> None:
            time.sleep(0.05)
            made.append(self)

    monkeypatch.setattr(code, "Library", Library)
    monkeypatch.setattr(code, "kept", lambda *_, **__: b"")
    product: Any = object()
    with ThreadPoolExecutor(4) as pool:
        found: list[Any] = list(pool.map(code.product_library, [product] * 4))
    assert len(made) == 1 and all(x is made[0] for x in found)


@needs_native
@pytest.mark.slow
def test_an_interrupt_reaches_native_code() -> None:
    program = (
        "import signal; from gemmlab.emulator import run\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "signal.signal(signal.SIGALRM, stop)\n"
        # Again every 5 s: Python drops an exception that a handler raises inside a destructor.
        "signal.setitimer(signal.ITIMER_REAL, 1, 5)\n"
        f"try: run({ptx('L: bra L;')!r}, 'k', (2, 1, 1), (32, 1, 1), [], tier='native',\n"
        "    max_instructions=10**15)\n"
        "except KeyboardInterrupt: signal.setitimer(signal.ITIMER_REAL, 0); print('stopped')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "stopped"
