"""Published files contain host code that launches and times kernels; NVRTC compiles the rest."""

import numpy as np
import pytest

import gemmlab
from gemmlab.compile import headers
from gemmlab.compile.host_code import without_host_code
from gemmlab.compile.nvrtc import compile_cuda
from gemmlab.errors import CompileError

KERNEL = """\
template <int B> __global__ void scale(float* x, int n) {
  int i = blockIdx.x * B + threadIdx.x;
  if (i < ceil_to(n, 1)) x[i] *= 2;  // a { in a comment, and "in } text"
}
"""
HELPER = "inline int ceil_to(int n, int step) { return (n + step - 1) / step * step; }\n"
HOST = {
    "main": "int main(int argc) {\n  cudaMalloc(0, 4);\n  if (argc) { return 1; }\n}\n",
    "run": "void run(float* x) {\n  scale<32><<<1, 32>>>(x, 3);\n}\n",
    "check": "static void check(cublasStatus_t status) { }\n",
    "bind": "MODULE(name, m) { m.def(run); }\n",
    "declared": "void verify(Tensor a,\n            Tensor b);\n",
}


@pytest.mark.parametrize("name", HOST)
def test_a_function_of_the_host_is_left_out_where_it_does_not_compile(name):
    text = f"namespace lab {{\n{HELPER}{KERNEL}{HOST[name]}}}  // namespace\n"
    artifact = compile_cuda(text, "lab::scale<32>")
    assert len(artifact.left_out) == 1 and "ceil_to" not in artifact.left_out
    assert artifact.ptx and artifact.entry.startswith("_ZN3lab5scale")


def test_headers_of_the_host_are_empty():
    text = f'#include <sys/time.h>\n#include "framework/api.h"\n{HELPER}{KERNEL}'
    artifact = compile_cuda(text, "scale<32>")
    assert artifact.left_out == ("sys/time.h", "framework/api.h")


def test_a_file_that_compiles_is_compiled_as_it_is():
    assert compile_cuda(HELPER + KERNEL, "scale<32>").left_out == ()


def test_an_error_in_a_kernel_is_told_with_its_line():
    text = HOST["main"] + HELPER + KERNEL.replace("x[i]", "y[i]")
    with pytest.raises(CompileError, match="without its host code") as error:
        compile_cuda(text, "scale<32>", name="file.cu")
    assert 'file.cu(8): error: identifier "y" is undefined' in error.value.log
    assert "cudaMalloc" not in error.value.log


def test_lines_and_what_is_for_the_device_stay():
    text = HOST["main"] + HELPER + "struct Size { int m, n; };\n" + KERNEL
    rest, names = without_host_code(text, range(1, 1 + text.count("\n")))
    assert names == {"main": 1, "ceil_to": 5, "Size": 6}
    assert rest.count("\n") == text.count("\n") and rest.endswith(KERNEL)
    assert list(without_host_code(text, [2])[1]) == ["main"]
    assert without_host_code(text, [])[0] == text


GLOBALS = {
    "FILE *fp;": "fp",
    "cublasHandle_t handle;": "handle",
    'static std::map<int, std::string> names = {{1, "a"}, {2, "b"}};': "names",
    "std::vector<int> SIZE = {128, 256};": "SIZE",
    'const std::string kLog = "a.txt";': "kLog",
    "auto t0 = std::chrono::steady_clock::now();": "t0",
    "static struct option options[] = { {\"m\", 1, 0, 'm'}, {0, 0, 0, 0} };": "options",
    "std::function<void(float*)> run = [](float* x) { launch(x); };": "run",
    "using json = nlohmann::json;": "json",
    "using std::vector;": "vector",
    "namespace fs = std::filesystem;": "fs",
    "typedef struct node { struct node* next; FILE* f; } node_t;": "node",
    "template <class T> using Ptr = std::unique_ptr<T>;": "Ptr",
    "template void launch<float>(float*, cudaStream_t);": "launch",
    "std::ostream& operator<<(std::ostream& os, int x) { return os << x; }": "operator<<",
    "class Timer {\n public:\n  Timer() { cudaEventCreate(&e_); }\n  std::string e_;\n};": "Timer",
    'const char* usage = R"(void f() { )" + nothing;': "usage",
}


@pytest.mark.parametrize("text", GLOBALS)
@pytest.mark.parametrize("around", ["{}", "namespace lab {{ {} }}", 'extern "C" {{ {}\n }}'])
def test_variables_types_and_aliases_of_the_host_are_left_out(text, around):
    if "template" in text and 'extern "C"' in around:
        around = "{}"  # C has no namespaces
    source = f"{around.format(text)}\n{HELPER}{KERNEL}"
    assert compile_cuda(source, "scale<32>").left_out == (GLOBALS[text],)


def test_of_a_class_that_kernels_use_member_functions_are_left_out():
    source = """
    struct Matrix {
      int w; float* e;
      Matrix(int w, float* e) : w(w), e{e} { cudaMalloc(&e, w); }
      Matrix() = default;
     public: ~Matrix() { cudaFree(e); }
      __device__ float at(int i) const { return e[i * w]; }
      void print() { std::cout << w; }
    };
    __global__ void k(Matrix m, float* x) { x[0] = m.at(1); }
    """
    artifact = compile_cuda(source)
    assert artifact.left_out == ("Matrix", "~Matrix", "print")
    assert artifact.parameters[0].size == 16


@pytest.mark.parametrize("field", ["std::string name;", "virtual void show() { cudaFree(0); }"])
def test_a_class_of_the_device_keeps_its_layout(field):
    source = f"struct A {{ {field}\n __device__ int f() {{ return 1; }} }};\n"
    with pytest.raises(CompileError, match=r"kernel\.cu\(1\): error"):
        compile_cuda(source + "__global__ void k(A a, int* x) { x[0] = a.f(); }")


def test_what_a_kernel_needs_is_told_with_the_error_for_which_it_is_left_out():
    source = "#include <gone.h>\nint limit() { return nothing; }\n"
    with pytest.raises(CompileError) as error:
        compile_cuda(source + "__global__ void k(int* x) { x[0] = limit(); }")
    assert 'kernel.cu(3): error: identifier "limit" is undefined' in error.value.log
    why = 'limit was removed as host code: kernel.cu(2): identifier "nothing" is undefined'
    assert why in error.value.log and "assumed empty: gone.h" in error.value.log


def test_lambdas_may_say_where_they_run():
    text = "auto f = [=] __host__ __device__ (int i) { return i; };"
    compile_cuda(f"__global__ void k(int* x) {{ {text} *x = f(1); }}")


@pytest.mark.slow
def test_what_headers_of_the_host_bring_is_there():
    text = """
    #include <iostream>
    using namespace std;
    void show(int x) { cout << std::pow(x, 2); }
    __global__ void k(float* x) { x[0] = std::numeric_limits<float>::lowest(); }
    """
    artifact = compile_cuda(text)
    assert artifact.left_out == ("show",)


def test_a_macro_that_defines_a_kernel_is_no_part_of_what_follows():
    text = """
    #define KERNEL(name, f) __global__ void name(float* x) { x[0] = f(x[0]); }
    KERNEL(root, sqrtf)
    KERNEL(power, (expf))
    int main() { root<<<1, 1>>>(0); }
    MODULE(name, m)
    { m.def(root); }
    """
    artifact = compile_cuda(text, "root")
    assert artifact.entry == "_Z4rootPf" and artifact.left_out == ("main", "MODULE")


HEADER = """\
#pragma once
#include "inner/more.cuh"  // größer
FILE* log_file;
inline void check(cudaError_t e) { std::cerr << cudaGetErrorString(e); }
__device__ inline float square(float x) { return SCALE * x * x; }
"""


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_code_of_the_host_in_included_files_is_left_out(tmp_path, monkeypatch, encoding):
    (tmp_path / "inner").mkdir()
    (tmp_path / "helper.h").write_bytes(HEADER.encode(encoding))
    more = '#include "../helper.h"\n#define SCALE 2\nstd::vector<int> sizes;\n'
    (tmp_path / "inner" / "more.cuh").write_text(more)
    path = tmp_path / "k.cu"
    path.write_text('#include "helper.h"\n__global__ void k(float* x) { *x = square(*x); }\n')
    artifact = gemmlab.load(path)
    assert set(artifact.left_out) == {"sizes", "log_file", "check"}
    monkeypatch.chdir(tmp_path)
    assert gemmlab.load("k.cu").entry == artifact.entry
    x = np.full(1, 3, np.float32)
    gemmlab.emulate(artifact, grid=1, block=1, args=[x])
    assert x == 18
    (tmp_path / "helper.h").write_text(HEADER.replace("square(float x)", "square(Float x)"))
    with pytest.raises(CompileError, match=r'helper\.h\(5\): error: identifier "Float" is undef'):
        gemmlab.load(path)


@pytest.mark.slow
def test_headers_of_libraries_for_the_host():
    source = """
    #include <thrust/device_vector.h>
    #include <thrust/sort.h>
    #include <cudaTypedefs.h>
    CUtensorMap host_map;
    thrust::device_vector<int> all;
    __global__ void k(const __grid_constant__ CUtensorMap map, int* x) { *x = 1; }
    """
    artifact = compile_cuda(source)
    assert set(artifact.left_out) == {"thrust/device_vector.h", "thrust/sort.h", "all"}
    assert artifact.parameters[0].size == 128


def test_an_older_nvrtc_takes_the_headers_of_a_toolkit(monkeypatch, tmp_path):
    def missing(*_):
        raise RuntimeError("function nvrtcInstallBundledHeaders is not found")

    monkeypatch.setattr(headers, "_bundled", missing)
    monkeypatch.setattr(headers, "_installed", lambda: [tmp_path / "include"])
    found = headers.include_paths("#include <mma.h>", "kernel.cu", None, "13.0")
    assert found[1:] == [tmp_path / "include"]
