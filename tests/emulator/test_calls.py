"""Calls of device functions and of functions that PTX does not define, such as printf and
assert."""

from __future__ import annotations

import numpy as np
import pytest
from machine import TIERS

import gemmlab
from gemmlab.cli.app import main
from gemmlab.compile import nvrtc
from gemmlab.emulator import run
from gemmlab.errors import EmulationError, PtxSyntaxError, UnsupportedInstructionError

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
@pytest.mark.slow
def test_printf_on_the_command_line(capsys, tmp_path, options):
    (tmp_path / "k.cu").write_text(PRINTING)
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(tmp_path / "k.cu"), *options])
    out, err = capsys.readouterr()
    printed = err if options == ["--json"] else out
    assert ended.value.code == 0 and printed.startswith(PRINTED) and (out + err).count(PRINTED) == 1


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("largest", [29, 35])
def test_assert(largest, tier):
    x = np.minimum(np.arange(64, dtype=np.int32), largest)
    artifact = nvrtc.compile_cuda(ASSERTING)
    if largest < 30:
        gemmlab.emulate(artifact, grid=1, block=64, args=[x], tier=tier)
        return
    with pytest.raises(EmulationError, match="an assertion failed") as caught:
        gemmlab.emulate(artifact, grid=1, block=64, args=[x], tier=tier)
    site = caught.value.site
    assert caught.value.thread == 30 and site is not None and str(site.source).endswith(":2")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("call.uni somewhere, ()", "somewhere is not defined"),
        ("call somewhere", "somewhere is not defined"),
        ("call %rd1, (), P", "an indirect call with no"),
    ],
)
def test_calls_of_nothing(call, words):
    with pytest.raises(UnsupportedInstructionError, match=words):
        run(UNDEFINED.replace("CALL", call), "k", (1, 1, 1), (32, 1, 1), [])


POINTERS = """
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ __noinline__ int less(int a, int b) { return a - b; }
typedef int (*F)(int, int);
__device__ F table[3] = {add, times, less};
__device__ int data[4] = {1, 2, 3, 4};
__device__ int* places[2] = {data + 2, data};
struct Base { __device__ virtual int of(int x) const = 0; };
struct Twice : Base { __device__ int of(int x) const override { return 2 * x; } };
struct Past : Base { int by; __device__ int of(int x) const override { return x + by; } };
extern "C" __global__ void k(const int* x, int* y, int guarded) {
  int t = threadIdx.x;
  Twice twice; Past past; past.by = t;
  const Base* one = t % 2 ? (const Base*)&twice : &past;
  if (!guarded || x[t] != 1) y[t] = one->of(table[x[t]](x[t], t)) + *places[t % 2];
}
"""


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("guarded", [0, 1])
def test_pointers_to_functions_and_data(tier, guarded):
    x, y, t = np.arange(64, dtype=np.int32) * 5 % 3, np.zeros(64, np.int32), np.arange(64)
    gemmlab.emulate(nvrtc.compile_cuda(POINTERS), grid=1, block=64, args=[x, y, guarded], tier=tier)
    result = np.select([x == 0, x == 1], [x + t, x * t], x - t)
    result = np.where(t % 2, 2 * result, result + t) + np.where(t % 2, 1, 3)
    np.testing.assert_array_equal(y, np.where(guarded & (x == 1), 0, result))


def test_a_pointer_to_no_function():
    kernel = nvrtc.compile_cuda(POINTERS.replace("F table[3]", "F table[4]"))
    args = [np.full(64, 3, np.int32), np.zeros(64, np.int32), 0]
    with pytest.raises(UnsupportedInstructionError, match="an indirect call with no matching"):
        gemmlab.emulate(kernel, grid=1, block=64, args=args)


CALLEE = """
.func (.param .b32 r) triple(.param .b32 a, .param .align 8 .b8 s[16])
{ .reg .b32 %r<4>; .reg .b64 %q<3>; .reg .pred %p<2>;
ld.param.b32 %r1, [a]; ld.param.u64 %q1, [s+8]; setp.gt.u32 %p1, %r1, 50; @%p1 bra BIG;
mul.lo.s32 %r2, %r1, 3; st.param.b32 [r], %r2; ret;
BIG: cvt.u32.u64 %r3, %q1; st.param.b32 [r], %r3; ret; }
"""


@pytest.mark.parametrize("guard", ["", "@%p1 "])
def test_device_functions(launch, guard):
    x = np.zeros(64, np.uint32)
    launch(
        "setp.lt.u32 %p1, %r0, 60; mov.u32 %r1, 1; mov.u64 %q5, 777;"
        "{ .param .b32 a; .param .align 8 .b8 s[16]; .param .b32 r; st.param.b32 [a], %r0;"
        f"st.param.b64 [s+8], %q5; st.param.b32 [r], %r1; {guard}call.uni (r), triple, (a, s);"
        "ld.param.b32 %r1, [r]; } add.u64 %q20, %q0, %q31; st.global.u32 [%q20], %r1;",
        [x],
        block=64,
        module=CALLEE,
    )
    wanted = [3 * i if i <= 50 else 777 for i in range(64)]
    assert x.tolist() == [1 if guard and i >= 60 else w for i, w in enumerate(wanted)]


def test_calls_with_other_arguments_are_no_ptx(launch):
    with pytest.raises(PtxSyntaxError, match="do not match its parameters"):
        launch("{ .param .b32 a; call.uni triple, (a); }", module=CALLEE)
