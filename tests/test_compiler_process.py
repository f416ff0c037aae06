"""The process of NVRTC and nvJitLink: after a crash, a kill or an interrupt, the next one works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gemmlab.compile import compiler_process, nvrtc, ptx
from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.errors import CompileError

PTX = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n"
KERNEL = 'extern "C" __global__ void k(int* x) { *x = %d; }'


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setattr(compiler_process, "_compilers", {})
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    nvrtc._ask.cache_clear()
    yield
    for compiler in compiler_process._compilers.values():
        compiler.end()


def child() -> subprocess.Popen[bytes]:
    (compiler,) = compiler_process._compilers.values()
    assert compiler._child is not None
    return compiler._child


def test_one_process_compiles_all() -> None:
    compile_cuda(KERNEL % 1)
    first = child().pid
    compile_cuda(KERNEL % 2)
    assert ptx.assemble(ptx.describe(PTX), "sm_90a")[:4] == b"\x7fELF"
    with pytest.raises(CompileError, match="undefined"):
        compile_cuda("__global__ void k() { nothing(); }")
    assert child().pid == first


def test_a_crash_is_an_error_that_names_signal_and_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crashing = tmp_path / "compiler.py"
    # At the second request, where the missing header is assumed empty.
    answer = json.dumps({"error": "E", "log": 'k.cu(1): cannot open source file "lab.h"'})
    crashing.write_text(
        f"import os, signal\ninput()\nprint({answer!r}, flush=True)\n"
        "input()\nos.kill(os.getpid(), signal.SIGSEGV)"
    )
    with monkeypatch.context() as patch:
        patch.setattr(compiler_process, "_COMPILER", crashing)
        told = "bad.cu: the compiler crashed: Segmentation fault; removed as host code: lab.h"
        with pytest.raises(CompileError, match=told):
            compile_cuda(KERNEL % 1, name="bad.cu")
    assert compile_cuda(KERNEL % 1).entry == "k"


def test_an_assembler_that_crashes_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crashing = tmp_path / "compiler.py"
    crashing.write_text("import os, signal\ninput()\nos.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setattr(compiler_process, "_COMPILER", crashing)
    artifact = ptx.describe(PTX, origin="bad.ptx")
    with pytest.raises(CompileError, match=r"bad\.ptx: the compiler crashed: Segmentation fault"):
        ptx.assemble(artifact, "sm_90a")


@pytest.mark.slow
def test_a_process_that_was_killed_between_two_compilations_is_replaced() -> None:
    compile_cuda(KERNEL % 1)
    child().kill()
    child().wait()
    assert compile_cuda(KERNEL % 2).entry == "k"


@pytest.mark.slow
def test_ctrl_c_ends_the_process() -> None:
    compile_cuda(KERNEL % 1)
    running = child()
    os.kill(running.pid, signal.SIGSTOP)  # it never answers
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        compile_cuda(KERNEL % 2)
    assert running.returncode == -signal.SIGKILL
    assert compile_cuda(KERNEL % 3).entry == "k"


@pytest.mark.parametrize("end", ["", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.slow
def test_it_ends_with_who_started_it(end: str) -> None:
    code = (
        "from gemmlab.compile import compiler_process, nvrtc\n"
        f"nvrtc.compile_cuda({KERNEL % 1!r})\n"
        "(compiler,) = compiler_process._compilers.values()\n"
        f"print(compiler._child.pid, flush=True)\n{end}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    process = Path("/proc", done.stdout.strip())
    stop = time.monotonic() + 5
    while process.exists() and time.monotonic() < stop:
        time.sleep(0.01)
    assert not process.exists()


@pytest.mark.slow
def test_threads_and_forks_do_not_mix_up_answers() -> None:
    texts: dict[int, str] = {}

    def compile_one(number: int) -> None:
        texts[number] = compile_cuda(KERNEL % (7000 + number)).ptx

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(str(7000 + number) in text for number, text in texts.items()) and len(texts) == 4
    parent = child().pid
    code = (
        "import os\nfrom gemmlab.compile import compiler_process, nvrtc\n"
        f"nvrtc.compile_cuda({KERNEL % 1!r})\n"
        "forked = os.fork()\n"
        f"assert '77' in nvrtc.compile_cuda({KERNEL % 77!r}).ptx\n"
        "assert len(compiler_process._compilers) == (1 if forked else 2)\n"
        "assert forked == 0 or os.waitpid(forked, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=20)
    assert child().pid == parent
