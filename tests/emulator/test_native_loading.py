"""Loading of native code works in any free memory and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from machine import needs_native

from gemmlab.emulator.native import compiler
from gemmlab.errors import TierError

pytestmark = needs_native

# Like a CUDA context, make a large reservation and fill the gaps among the libraries that could
# hold all sections of an object. Further kernels must still load.
CROWDED = """
import ctypes, sys
import numpy as np
from gemmlab.emulator import run
from snippets import ptx

def kernel(number):
    return ptx(f'''.shared .b32 s[32]; ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 3; mov.f32 %f1, 0f00000000;
        LOOP: cvt.rn.f32.u32 %f2, %r2; sin.approx.f32 %f2, %f2; add.f32 %f1, %f1, %f2;
        sub.s32 %r2, %r2, 1; setp.ge.s32 %p1, %r2, 0; @%p1 bra LOOP;
        mad.wide.u32 %q1, %r1, 4, %q0; cvt.rni.s32.f32 %r3, %f1; add.u32 %r3, %r3, {number};
        st.global.b32 [%q1], %r3; ret;''', ["u64"])

def launch(number, tier):
    x = np.zeros(32, np.uint32)
    run(kernel(number), "k", (1, 1, 1), (32, 1, 1), [x], tier=tier)
    return x.tolist()

numbers = range(1, 6)
wanted = [launch(number, "numpy") for number in numbers]
from llvmlite import binding
binding.initialize_native_target()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]

def reserve(size, at=None):  # no access; private, anonymous, no swap space, not over others
    return libc.mmap(at, size, 0, 0x4022 | (0x100000 if at else 0), -1, 0)

base = reserve(512 << 30)
assert base not in (None, ctypes.c_void_p(-1).value)
with open("/proc/self/maps") as maps:
    spans = [[int(x, 16) for x in line.split()[0].split("-")] for line in maps]
for (_, last), (first, _) in zip(spans, spans[1:]):
    if last > base and 6 * 4096 < first - last < 1 << 46:
        reserve(first - last, last)
print([launch(number, "native") for number in numbers] == wanted)
"""


@pytest.mark.slow
def test_code_loads_where_the_address_space_is_crowded(tmp_path: Path) -> None:
    environment = os.environ | {"GEMMLAB_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CROWDED],
        cwd=Path(__file__).parent,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


TABLE = "@fast = constant [1 x ptr] [ptr @f]\n"


@pytest.mark.slow
def test_a_library_that_dies_leaves_no_memory() -> None:
    functions = "".join(f"define i32 @f{k}() #0 {{ ret i32 {k} }}\n" for k in range(200))
    image = compiler.build(functions + TABLE.replace("@f]", "@f0]"))

    def load(times: int) -> int:
        """Return the number of bytes by which the process grows."""
        before = resident()
        for _ in range(times):
            assert compiler.Library(image, ["fast"])["fast"]
        return resident() - before

    load(100)  # initial growth of malloc's pools
    assert load(200) < 200 * 4096


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_libraries_load_in_several_threads() -> None:
    image = compiler.build("define i32 @f() #0 { ret i32 7 }\n" + TABLE)
    loaded: list[compiler.Library] = []

    def work() -> None:
        loaded.extend(compiler.Library(image, ["fast"]) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({library["fast"] for library in loaded}) == 80


def test_what_is_missing_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    image = compiler.build(
        "declare i32 @of_nobody()\ndefine i32 @f() #0 {\n"
        "%x = call i32 @of_nobody()\nret i32 %x }\n" + TABLE
    )
    with pytest.raises(TierError, match="LLVM cannot load"):
        compiler.Library(image, ["fast"])
    assert "of_nobody" in capfd.readouterr().err
