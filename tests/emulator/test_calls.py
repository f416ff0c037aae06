"""Calls of what PTX does not define: printf and assert of CUDA, and others."""

from __future__ import annotations

import numpy as np
import pytest

import gemmlab
from gemmlab.cli import main
from gemmlab.compile import nvrtc
from gemmlab.emulator import run
from gemmlab.errors import EmulationError, UnsupportedInstructionError

PRINTING = """//! gemmlab grid=1 block=40 args=x:i32[40]=zeros
__device__ const char name[] = "tile";
extern "C" __global__ void k(int* x) {
  int t = threadIdx.x;
  if (t % 16 == 7)
    x[t] = printf("%2d: %.2f %-5s| %lld %llu %c %x %% %*d\\n", t, t / 4.0, name, -5ll, ~0ull, 'q',
                  -1, 4, t);
}
"""
PRINTED = "".join(
    f"{t:2}: {t / 4:.2f} tile | -5 18446744073709551615 q ffffffff % {t:4}\n" for t in (7, 23, 39)
)
ASSERTING = 'extern "C" __global__ void k(int* x) {\n  assert(x[threadIdx.x] < 30);\n}\n'
UNDEFINED = """.version 8.0
.target sm_90a
.address_size 64
.extern .func somewhere ();
.visible .entry k() { .reg .b64 %rd<2>; CALL; ret; }
"""


def test_printf(capsys):
    x = np.zeros(40, np.int32)
    gemmlab.emulate(nvrtc.compile_cuda(PRINTING), grid=1, block=40, args=[x])
    assert capsys.readouterr().out == PRINTED
    np.testing.assert_array_equal(x, np.where(np.arange(40) % 16 == 7, 9, 0))


@pytest.mark.parametrize("options", [[], ["--json"], ["--check", "all"]])
def test_printf_on_the_command_line(capsys, tmp_path, options):
    (tmp_path / "k.cu").write_text(PRINTING)
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(tmp_path / "k.cu"), *options])
    out, err = capsys.readouterr()
    printed = err if options == ["--json"] else out
    assert ended.value.code == 0 and printed.startswith(PRINTED) and (out + err).count(PRINTED) == 1


@pytest.mark.parametrize("tier", ["numpy", "native"])
@pytest.mark.parametrize("largest", [29, 35])
def test_assert(largest, tier):
    pytest.importorskip("llvmlite") if tier == "native" else None
    x = np.minimum(np.arange(64, dtype=np.int32), largest)
    artifact = nvrtc.compile_cuda(ASSERTING)
    if largest < 30:
        gemmlab.emulate(artifact, grid=1, block=64, args=[x], tier=tier)
        return
    with pytest.raises(EmulationError, match="an assertion failed") as caught:
        gemmlab.emulate(artifact, grid=1, block=64, args=[x], tier=tier)
    assert caught.value.thread == 30 and caught.value.site.source.endswith(":2")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("call.uni somewhere, ()", "somewhere is not defined"),
        ("call somewhere", "somewhere is not defined"),
        ("call %rd1, (), P", "through a pointer"),
    ],
)
def test_calls_of_nothing(call, words):
    with pytest.raises(UnsupportedInstructionError, match=words):
        run(UNDEFINED.replace("CALL", call), "k", (1, 1, 1), (32, 1, 1), [])
