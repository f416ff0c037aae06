"""CUDA C++ written for nvcc compiles without a toolkit or host compiler."""

import numpy as np
import pytest

import gemmlab
from gemmlab.lab.directives import Directive
from gemmlab.lab.kernel_file import KernelFile
from gemmlab.lab.submission.judging import read_file

SOURCE = """
#include <cassert>
#include <cmath>
#include <cstdio>
#include <stdint.h>
#include <algorithm>
#include <vector>
#include <cuda_runtime.h>

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
int twice(int x) { return 2 * x; }

namespace lab {
__global__ void root(float* x, uint n) {
    uint i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(n > 0);
    if (i < n) x[i] = std::min(sqrtf(x[i]), float(twice(int32_t(ceil_div(5, 2)))));
}
}
"""


@pytest.mark.slow
def test_standard_headers_host_helpers_and_namespaces(tmp_path):
    path = tmp_path / "root.cu"
    path.write_text(SOURCE)
    kernel = gemmlab.load(path, entry="lab::root")
    x = np.arange(64, dtype=np.float32)
    gemmlab.emulate(kernel, grid=2, block=32, args=[x, 60])
    expected = np.arange(64, dtype=np.float32)
    expected[:60] = np.minimum(np.sqrt(expected[:60]), 6)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    blocked = tmp_path / "cache"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("GEMMLAB_CACHE", str(blocked))
    path = tmp_path / "k.cu"
    path.write_text("#include <cfloat>\n__global__ void k(float* x) { *x = FLT_MAX; }")
    assert gemmlab.load(path).cubin


def test_names_that_nvcc_has_from_the_c_library():
    names = [
        "INFINITY",
        "NAN",
        "HUGE_VALF",
        "HUGE_VAL",
        "M_PI",
        "M_SQRT1_2",
        "M_2_SQRTPI",
        "INT_MIN",
    ]
    lines = "".join(f"x[{i}] = {name};" for i, name in enumerate(names))
    own = "".join(f"constexpr double k{name} = {name};" for name in names)  # a constant expression
    x = np.zeros(len(names))
    kernel = gemmlab.load(f"{own} __global__ void k(double* x, int64_t n, uint8_t) {{ {lines} }}")
    gemmlab.emulate(kernel, grid=1, block=1, args=[x, 1, 1])
    root = 1 / np.sqrt(2)
    expected = [np.inf, np.nan, np.inf, np.inf, np.pi, root, 2 / np.sqrt(np.pi), -(2**31)]
    np.testing.assert_allclose(x, expected, rtol=2e-16)


@pytest.mark.parametrize(
    "own",
    [
        "#define M_PI 3.0f",
        "const double M_PI = 3;",
        "constexpr float M_PI{3};",
        "typedef unsigned long uint64_t;\nenum { M_PI = 3 };",
        "#include <cmath>\n#include <climits>\n#include <cstdint>\n#define M_PI 3",
    ],
)
@pytest.mark.slow
def test_a_source_may_declare_such_names_itself(own):
    x = np.zeros(1, np.float32)
    text = f"{own}\n__global__ void k(float* x) {{ x[0] = M_PI + (uint64_t)0; }}"
    gemmlab.emulate(gemmlab.load(text), grid=1, block=1, args=[x])
    assert x[0] == 3


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_may_be_in_any_encoding(tmp_path, encoding, end):
    path = tmp_path / "k.cu"
    text = f"//! gemmlab grid=1 block=1 args=1{end}// für{end}__global__ void k(int n) {{}}{end}"
    path.write_bytes(text.encode(encoding))
    assert gemmlab.load(path).entry == "_Z1ki"
    assert KernelFile.read(path, Directive()).directive.args == ("1",)
    assert read_file(path).count("\n") == 3


def test_what_is_no_text_is_refused(tmp_path):
    path = tmp_path / "k.cu"
    path.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(gemmlab.errors.InputError, match=r"k.cu cannot be read: it is not text"):
        gemmlab.load(path)


def test_load_takes_the_text_of_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "value.h").write_text("#define VALUE 1234")
    assert (
        "1234" in gemmlab.load('#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }').ptx
    )
    with pytest.raises(gemmlab.errors.CompileError, match=r"kernel\.cu\(2\): error"):
        gemmlab.load("// a\n__global__ void k() { y = 1; }")
    with pytest.raises(gemmlab.errors.InputError, match="only a rung has a layout; text"):
        gemmlab.load("__global__ void k() {}", layout="row")


@pytest.mark.parametrize(
    ("use", "entry", "hint"),
    [
        ("", None, "has no kernel entry; .* as in entry='TMPL<32, float>'"),
        ("int main() { TMPL<16, half> <<<1, 2>>>(x); }", None, "as in entry='TMPL<16, half>'"),
        ("void f() { TMPL<N, T><<<1, 2>>>(x); }", None, "as in entry='TMPL<32, float>'"),
        ("", "TMPL<8>", "has no kernel 'TMPL<8>'; .* as in entry='TMPL<32, float>'"),
        ("__global__ void g() {}", "TMPL", "no entry 'TMPL'; it has _Z1gv; .*'TMPL<32, float>'"),
    ],
)
def test_a_template_is_named_with_arguments(use, entry, hint):
    text = "template <int N, typename T, int M = 2>\n__global__ void TMPL(T* x) { *x = N; }\n" + use
    with pytest.raises(gemmlab.errors.UnknownNameError, match=hint):
        gemmlab.load(text, entry=entry)
