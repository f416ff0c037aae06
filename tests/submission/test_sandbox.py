"""A submission that attacks the judge costs only itself: docs/judging.md has the table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attempts import ATTEMPTS, CODE, OWN
from kernels import gemm
from machine import needs_bubblewrap, needs_landlock, needs_sandbox, needs_x86_64

import gemmlab
from gemmlab.core import disk_cache, scratch
from gemmlab.core.sandbox import Support, bubblewrap, landlock, policy, support
from gemmlab.errors import SandboxError
from gemmlab.lab.directives import Directive
from gemmlab.lab.submission import isolation, listening, process
from gemmlab.lab.submission.judging import Options, judge_file
from gemmlab.lab.submission.process import Limits, run
from gemmlab.lab.submission.submission import Submission

WORDS = Directive(problem="gemm", entry="f", grid=("1",), block=("32",))
BUBBLEWRAP = Support(landlock=0, bubblewrap=True, seccomp=True)
MECHANISMS = [
    pytest.param("Landlock", marks=needs_landlock),
    pytest.param("bubblewrap", marks=needs_bubblewrap),
]
ALL = {name: text for attempts in ATTEMPTS.values() for name, text in attempts.items()}


def executed(folder, text, sandbox=True, seconds=30.0):
    """Run the compiling task on a Python file in a folder of its own."""
    folder.mkdir(exist_ok=True)
    file = folder / "kernel.py"
    file.write_text(text)
    limits = Limits(file, seconds, 4 * 2**30, sandbox=sandbox)
    return run("compile_file", Submission(file, WORDS, "sm_90a", 0), limits)


@pytest.fixture(scope="module", params=MECHANISMS)
def tried(request, tmp_path_factory):
    """What confines, and the outcome of every attempt by its name."""
    place = tmp_path_factory.mktemp("judge")
    secret = place / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("a key")
    values = {
        "parent": os.getpid(),
        "secret": str(secret),
        "package": gemmlab.__file__,
        "cached": str(disk_cache.folder() / "planted"),
        "attempts": json.dumps(ALL),
    }
    with pytest.MonkeyPatch.context() as changed:
        if request.param == "bubblewrap":
            changed.setattr(process, "support", lambda: BUBBLEWRAP)
        changed.setenv("GEMMLAB_TEST_TOKEN", "secret")
        ended = executed(place / "submission", CODE.format(**values))
    assert secret.read_text() == "a key"
    return request.param, dict(line.rsplit(" ", 1) for line in ended.output.splitlines())


@needs_x86_64
@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTEMPTS)
def test_what_hostile_code_tries_is_refused(tried, kind):
    mechanism, outcomes = tried
    names = [name for name in ATTEMPTS[kind] if mechanism == "Landlock" or name not in OWN]
    assert {name: outcomes.get(name) for name in names} == dict.fromkeys(names, "refused")


@pytest.mark.slow
def test_without_a_sandbox_the_attempts_succeed(tmp_path):
    """So a refusal is the sandbox's doing."""
    names = ["read a file", "TCP", "signal the judge", "fork", "change the package"]
    secret = tmp_path / "secret"
    secret.write_text("a key")
    attempts = json.dumps({name: ALL[name] for name in names})
    values = {"parent": os.getpid(), "secret": str(secret), "package": gemmlab.__file__}
    text = CODE.format(**values, cached="", attempts=attempts)
    output = executed(tmp_path / "submission", text, sandbox=False).output.splitlines()
    assert [line for line in output if line.endswith("refused")] == []
    assert {line.rsplit(" ", 1)[0] for line in output} >= {*names}


NAMES_A_THREAD = """
import subprocess, sys, threading
from pathlib import Path
if sys.argv[1] != "child":
    from gemmlab.core import sandbox
    from gemmlab.lab.submission import isolation

    reach = isolation.policy(Path(sys.argv[2]), Path(sys.argv[2]), False, sys.argv[1] == "GPU")
    sandbox.enter(reach, with_landlock=True)

def rename():
    try:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("renamed")
        print("renamed", flush=True)
    except OSError:
        print("refused", flush=True)

thread = threading.Thread(target=rename)
thread.start()
thread.join()
if sys.argv[1] != "child":
    subprocess.run([sys.executable, __file__, "child"])
"""


@needs_landlock
@pytest.mark.parametrize(("kind", "outcome"), [("GPU", "renamed"), ("no GPU", "refused")])
def test_a_driver_may_name_its_threads(tmp_path, kind, outcome):
    """CUDA's fails with CUDA_ERROR_OPERATING_SYSTEM if it may not."""
    program = tmp_path / "names_a_thread.py"
    program.write_text(NAMES_A_THREAD)
    command = [sys.executable, str(program), kind, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == [outcome, outcome], ended.stderr


FLOODS = {
    "threads": (
        "import threading, time\n"
        "threading.stack_size(2**16)\n"
        "while True: threading.Thread(target=time.sleep, args=(99,)).start()\n",
        "more than 20 threads",
    ),
    "files": (
        "import time\nfor i in range(999): open(str(i), 'w').close()\ntime.sleep(99)\n",
        "more than 500 files",
    ),
    "bytes": (
        "import time\nopen('large', 'wb').write(b'x' * 2**24)\ntime.sleep(99)\n",
        "GiB of files",
    ),
    "bytes without a name": (
        "import os, time\n"
        "file = open('large', 'wb')\nos.unlink('large')\nfile.write(b'x' * 2**24)\n"
        "file.flush()\ntime.sleep(99)\n",
        "GiB of files",
    ),
    "deep folders": (
        "import os, time\n"
        "for i in range(40): os.mkdir('x' * 100); os.chdir('x' * 100)\n"
        "time.sleep(99)\n",
        "a folder that cannot be read",
    ),
    "small answers": (
        "import os, sys, time\nos.write(int(sys.argv[2]), b'{}\\n' * 20)\ntime.sleep(99)\n",
        "more than 10 answers",
    ),
    "answers": (
        "import os, sys\nwhile True: os.write(int(sys.argv[2]), b'{}\\n' * 2**12)\n",
        "MiB of answers",
    ),
}


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize("name", ["threads", "bytes without a name"])
def test_a_flood_inside_bubblewrap_is_stopped(tmp_path, monkeypatch, name):
    """Its process is not the judge's child, but a descendant."""
    monkeypatch.setattr(process, "support", lambda: BUBBLEWRAP)
    test_a_flood_is_stopped(tmp_path, monkeypatch, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_stopped(tmp_path, monkeypatch, name):
    monkeypatch.setattr(listening, "THREADS", 20)
    monkeypatch.setattr(listening, "DISK_FILES", 500)
    monkeypatch.setattr(listening, "DISK_BYTES", 2**23)
    monkeypatch.setattr(listening, "ANSWER_BYTES", 2**20)
    monkeypatch.setattr(listening, "ANSWERS", 10 if name == "small answers" else 2**30)
    text, message = FLOODS[name]
    ended = executed(tmp_path / "submission", text)
    assert (ended.status, message in ended.message) == ("resource limit", True), ended


@pytest.mark.slow
def test_folders_that_resist_are_removed(tmp_path, monkeypatch):
    """Python's own removal fails beyond a thousand levels, and without rights."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch.folder() as folder:
        here = os.getcwd()
        os.chdir(folder)
        for _ in range(1200):
            os.mkdir("x", 0o500 if os.getuid() == 0 else 0o700)
            os.chdir("x")
        os.chdir(here)
    assert not list(tmp_path.iterdir())


INCLUDES = {
    "a full path": '#include "{secret}"',
    "through a macro": '#define FILE "{secret}"\n#include FILE',
    "the parent folder": '#include "../elsewhere/secret"',
    "a symbolic link": '#include "link.h"',
    "embedded": '__device__ char text[] = {{\n#embed "{secret}"\n}};',
    "the assembler": '__device__ void g() {{ asm(".include \\"{secret}\\""); }}',
}


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "verdict"),
    [({"embedded"}, "compile error"), (INCLUDES.keys() - {"embedded"}, "pass")],
    ids=["embedded", "otherwise"],
)
def test_no_other_file_is_included_or_quoted(tmp_path, ways, verdict):
    """A header that is not there is left out, and the next one is tried."""
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("hunter2 is the password\n")
    file = tmp_path / "submission" / "kernel.cu"
    file.parent.mkdir()
    (file.parent / "link.h").symlink_to(secret)
    lines = [INCLUDES[way].format(secret=secret) for way in sorted(ways)]
    file.write_text(gemm(before="\n".join(lines)))
    found = judge_file(file, Directive(), Options(gpu=False, seed=1))
    assert "hunter2" not in json.dumps(found.as_json())
    assert found.verdict == verdict


@pytest.mark.slow
def test_a_compile_error_quotes_no_other_file(tmp_path):
    """Not even one that the sandbox shows, and not without a sandbox."""
    other = tmp_path / "elsewhere.h"
    other.write_text("hunter2 is the password\n")
    file = tmp_path / "submission" / "kernel.cu"
    file.parent.mkdir()
    file.write_text(gemm(before=f'#define FILE "{other}"\n#include FILE'))
    found = judge_file(file, Directive(), Options(gpu=False, seed=1, sandbox="off"))
    assert found.verdict == "compile error"
    assert "hunter2" not in json.dumps(found.as_json())
    assert f"includes {other}, which is neither in its folder" in found.steps[-1].message


@pytest.mark.slow
def test_a_header_in_the_folder_is_included(tmp_path):
    (tmp_path / "own.h").write_text("#define START 0\n")
    file = tmp_path / "kernel.cu"
    file.write_text(gemm(before='#include "own.h"').replace("float sum = 0", "float sum = START"))
    found = judge_file(file, Directive(), Options(gpu=False, seed=1))
    assert found.passed, found.steps[-1]
    assert found.sandbox == str(support())


@needs_sandbox
@pytest.mark.slow
def test_a_folder_with_much_else_is_not_shown(tmp_path, monkeypatch):
    """Of a file in the home folder, the process sees only the file."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret").write_text("a key")
    assert not isolation.policy(
        tmp_path / "kernel.py", tmp_path / "own", runs_file=True, on_gpu=False
    ).readable.count(str(tmp_path))
    text = f"print(len(open(__file__).read()))\nopen({str(tmp_path / 'secret')!r})\n"
    ended = executed(tmp_path, text)
    assert "PermissionError" in ended.message
    assert ended.output.strip() == str(len(text))


def test_the_file_s_code_does_not_know_the_seed(judge, monkeypatch):
    seeds = {}

    def noted(task, request, _limits):
        seeds[task] = request.seed
        return process.TaskResult([{"ptx": ".version .target"}])

    judge(gemm(), seed=7)  # replaces process.run
    monkeypatch.setattr(process, "run", noted)
    judge_file(judge.file(gemm()), Directive(), Options(gpu=False, seed=7))
    assert seeds["compile_file"] == 0 and seeds["check_statically"] == 7


LACKING = Support(landlock=2, bubblewrap=False, seccomp=True)


@pytest.mark.slow
def test_a_judge_without_a_sandbox_refuses_or_says_so(judge, monkeypatch):
    monkeypatch.setattr(isolation, "support", lambda: LACKING)
    with pytest.raises(SandboxError, match=r"version 2 of Landlock.*apt install bubblewrap"):
        judge(gemm(), sandbox="required")
    found = judge(gemm())
    assert found.passed and found.sandbox.startswith("none: this kernel has version 2 of Landlock")
    assert judge(gemm(), sandbox="off").sandbox == "off"


def test_bubblewrap_takes_the_place_of_landlock(tmp_path, monkeypatch):
    monkeypatch.setattr(landlock, "version", lambda: 1)
    monkeypatch.setattr(bubblewrap, "available", lambda: True)
    found = policy.support.__wrapped__()
    assert str(found) == "bubblewrap, seccomp"
    reach = isolation.policy(tmp_path / "k" / "kernel.cu", tmp_path, runs_file=True, on_gpu=False)
    command = " ".join(found.prefix(reach, str(tmp_path)))
    assert command.startswith("bwrap --unshare-user") and "--unshare-net" in command
    assert f"--bind-try {tmp_path} {tmp_path}" in command
    assert f"--ro-bind-try {Path(gemmlab.__file__).parent}" in command


@needs_bubblewrap
@pytest.mark.slow
def test_all_steps_run_inside_bubblewrap(tmp_path, monkeypatch):
    for module in (process, isolation):
        monkeypatch.setattr(module, "support", lambda: BUBBLEWRAP)
    (tmp_path / "own.h").write_text("#define START 0\n")
    file = tmp_path / "kernel.cu"
    file.write_text(gemm(before='#include "own.h"').replace("float sum = 0", "float sum = START"))
    found = judge_file(file, Directive(), Options(gpu=False, seed=1, sandbox="required"))
    assert found.passed, found.steps[-1]
    assert found.sandbox == "bubblewrap, seccomp"


def test_only_the_steps_on_a_gpu_reach_its_devices(tmp_path, monkeypatch):
    monkeypatch.setattr(isolation, "_DRIVER_DEVICES", (f"{tmp_path}/nvidia*",))
    (tmp_path / "nvidia0").touch()
    (tmp_path / "submission").mkdir()
    file = tmp_path / "submission" / "kernel.cu"
    on_gpu = isolation.policy(file, tmp_path, runs_file=False, on_gpu=True)
    assert str(tmp_path / "nvidia0") in on_gpu.devices and not on_gpu.alone
    compiling = isolation.policy(file, tmp_path, runs_file=True, on_gpu=False)
    assert str(tmp_path / "nvidia0") not in compiling.devices and compiling.alone
    assert str(disk_cache.folder()) in on_gpu.writable
    assert str(disk_cache.folder()) not in compiling.writable


def test_libraries_that_the_environment_names_are_readable(tmp_path, monkeypatch):
    """But not the whole home folder, if a path names that."""
    home = tmp_path / "home"
    (tmp_path / "cuda").mkdir()
    (home / "submission").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}/cuda:{home}:.")
    file = home / "submission" / "kernel.cu"
    readable = isolation.policy(file, tmp_path / "own", runs_file=True, on_gpu=False).readable
    assert str(tmp_path / "cuda") in readable
    assert str(home) not in readable and "." not in readable


def test_a_folder_that_packages_were_installed_into_is_readable(tmp_path, monkeypatch):
    """As by `pip install --target`; a project or the home folder on the import path is not."""
    target, project, home = (tmp_path / name for name in ("target", "project", "home"))
    for folder in (target, home):
        (folder / "numpy-2.0.dist-info").mkdir(parents=True)
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("sys.path", [*sys.path, *map(str, (target, project, home))])
    file = tmp_path / "submission" / "kernel.cu"
    readable = isolation.policy(file, tmp_path / "own", runs_file=True, on_gpu=False).readable
    assert str(target) in readable
    assert str(project) not in readable and str(home) not in readable


@needs_sandbox
def test_a_process_with_threads_is_not_confined(tmp_path, monkeypatch):
    """Its other threads would keep their rights."""
    reach = isolation.policy(tmp_path / "kernel.cu", tmp_path, runs_file=True, on_gpu=False)
    monkeypatch.setattr(os, "listdir", lambda path: ["1", "2"])
    with pytest.raises(OSError, match="several threads"):
        policy.enter(reach, with_landlock=True)
