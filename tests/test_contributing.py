"""The examples of CONTRIBUTING.md, carried out on a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def carry_out(title: str, target: Path) -> list[str]:
    """Make the changes of one section in a copy of the project; return the files changed."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(title + "\n"))
    changed = []
    for language, body in re.findall(r"^```(python|diff)\n(.*?)^```$", text, re.DOTALL | re.M):
        head, rest = body.split("\n", 1)
        name = head.strip().removeprefix("# ")
        file = target / name
        if language == "python":
            assert not file.exists()
            file.parent.mkdir(exist_ok=True)
            file.parent.mkdir(exist_ok=True)
            file.write_text(rest)
        else:
            lines = rest.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            old = file.read_text()
            assert old.count(before) == 1, f"{name}: {before!r} is not there once"
            file.write_text(old.replace(before, after))
        changed.append(name)
    return changed


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and its pages, and a function that runs Python on it."""
    for name in ("gemmlab", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)  # with compiled modules: times are copied

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return tmp_path, run


def commands(run, *given):
    """Run commands of the copy's gemmlab, one after the other in one process: what each prints."""
    return run(
        "from gemmlab.cli.app import main\n"
        f"for words in {given}:\n"
        "    try:\n"
        "        main(words)\n"
        "    except SystemExit as ended:\n"
        "        assert not ended.code\n"
        "    print('\\0')\n"
    ).split("\0\n")[:-1]


def run_tests(target, run, names, chosen):
    """Run tests of the copy: in tests/test_<name>.py, those that match `chosen`."""
    for name in ("tests", "pyproject.toml"):
        copy_of = shutil.copy if (ROOT / name).is_file() else shutil.copytree
        copy_of(ROOT / name, target / name)
    files = [f"tests/test_{name}.py" for name in names]
    arguments = [*files, "-n", "0", "-q", "-p", "no:cacheprovider", "-k", chosen]
    run(f"import pytest, sys; sys.exit(pytest.main({arguments}))")


SUBMISSION = """//! gemmlab problem=square entry=square args=x,y,n block=256 grid=ceil_div(n,256)
extern "C" __global__ void square(const float* x, float* y, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
"""


def test_a_rung_and_a_problem(copy):
    """Both in one copy: then its commands and tests start once."""
    target, run = copy
    assert len(carry_out("Add a rung", target)) == 2
    assert len(set(carry_out("Add a problem", target))) == 4
    (target / "square.cu").write_text(SUBMISSION)
    listed, climbed, climbed_square, judged, explained, _ = commands(
        run,
        ("list",),
        ("climb", "--rungs", "shared,small-tiles", "--size", "32", "--device", "emulated"),
        ("climb", "square", "--size", "1000", "--device", "emulated"),
        ("judge", "square.cu", "--emulated"),
        ("explain", "square-naive", "--size", "1000"),
        ("export", "square", "-o", "exported"),
    )
    assert "small-tiles" in listed and "square-naive" in listed and "square-naive" in explained
    assert climbed.count("pass") == 2 and "pass" in climbed_square and "pass" in judged
    # What is demanded of every rung: its place, readings of hardware, a model, an explanation.
    added, demanded = "small-tiles or square", "complete or was_read or has_a_model"
    chosen = f"{added} or test_order or test_tiles or {demanded}"
    names = ("ladder", "problems", "kernels", "readings", "traffic", "explain")
    run_tests(target, run, names, chosen)


KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
    .reg .b32 %r<4>;
    .reg .b64 %q<3>;
    ld.param.u64 %q0, [p];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %q1, %r0, 4;
    add.u64 %q0, %q0, %q1;
    BODY
    ret;
}
"""
LAUNCH = """
import numpy as np
from gemmlab.emulator import run
for tier in ("numpy", "auto"):
    x = np.zeros(64, np.uint32)
    result = run('''KERNEL''', "k", (1, 1, 1), (64, 1, 1), [x], tier=tier)
"""


def test_a_counter(copy):
    target, run = copy
    assert len(carry_out("Add a counter", target)) == 2
    launch = LAUNCH.replace("KERNEL", KERNEL.replace("BODY", "bar.sync 0; bar.sync 0;"))
    assert run(launch + '    print(result.counters["ptx_barrier_executed.sum"])') == "4\n4\n"


def test_an_arithmetic_instruction(copy):
    target, run = copy
    changed = carry_out("Add a PTX instruction", target)
    assert changed[0] == "gemmlab/emulator/translation/isa.py"
    body = "avg.u32 %r2, %r0, 0xFFFFFFFE; st.global.u32 [%q0], %r2;"
    launch = LAUNCH.replace("KERNEL", KERNEL.replace("BODY", body))
    expected = [(n + 0xFFFFFFFE) // 2 for n in range(64)]
    assert run(launch + "    print(x.tolist())") == f"{expected}\n" * 2


def test_a_memory_instruction(copy):
    """On both tiers, with every check, and counted as a load."""
    target, run = copy
    assert len(carry_out("Add a PTX instruction", target)[1:]) == 3
    body = "st.global.u32 [%q0], %r0; ldnot.global.u32 %r2, [%q0]; st.global.u32 [%q0], %r2;"
    launch = LAUNCH.replace("KERNEL", KERNEL.replace("BODY", body))
    loads = "smsp__inst_executed_op_global_ld.sum"
    expected = [2**32 - 1 - n for n in range(64)]
    checked = launch.replace("tier=tier", "tier=tier, check='all'")
    told = run(
        f"{launch}    print(x.tolist(), result.counters[{loads!r}])\n"
        f"{checked}    print(x.tolist(), result.findings)"
    )
    assert told == f"{expected} 2\n" * 2 + f"{expected} ()\n" * 2


PRODUCT = """
from gemmlab.linalg.planning.launch import WorkspaceAddresses
from gemmlab.linalg.planning.program import Factor, Job
from gemmlab.linalg.planning.tiers import choose
from gemmlab.linalg.planning.times import Case
from gemmlab.linalg.shapes import Operand, Stack
n = 4096
choice = choose(None, Case(n, n, n, capability=CAPABILITY, multiprocessors=148))
factors = (Factor(x, Operand(n, n, x == "a", n), choice.tier, arch=choice.arch) for x in "ab")
job = Job(*factors, Stack(n, n, n, 1), choice)
launches = job.launches(WorkspaceAddresses(0, 0, 0), 148)
print(choice.tier, {launch.arch.target for launch in launches})
"""


def test_an_architecture(copy):
    target, run = copy
    assert len(carry_out("Add an architecture", target)) == 3
    hopper, added = (PRODUCT.replace("CAPABILITY", x) for x in ("(9, 0)", "(13, 0)"))
    known = "from gemmlab.compile.architectures import check_architecture as check"
    device = "from gemmlab.hardware.specs import target_of"
    printed = run(f"{hopper}\n{added}\n{known}\n{device}\nprint(check(target_of(13, 0)))")
    assert printed == "fp16x3 {'sm_90a'}\nfp16x3 {'sm_130a'}\nsm_130a\n"


def test_a_precision(copy):
    target, run = copy
    assert len(set(carry_out("Add a precision", target))) == 3
    climb = ("climb", "--rungs", "bf16x9", "--size", "32", "--device", "emulated")
    small = ("--set", "block_m=64", "--set", "block_n=64")  # which compiles sooner
    (climbed,) = commands(run, climb + small)
    assert "pass" in climbed
    modules = "from gemmlab.linalg.planning import tiers, times"
    case = "Case(64, 64, 64, capability=(9, 0))"
    assert run(f"{modules}; print(tiers.choose('bf16x9', times.{case}).tier)") == "bf16x9\n"
