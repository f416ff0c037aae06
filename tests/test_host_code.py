"""Published files bring the code that launches and times them; NVRTC compiles what is left."""

import pytest

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
    with pytest.raises(CompileError, match="without its code of the host") as error:
        compile_cuda(text, "scale<32>", name="file.cu")
    assert 'file.cu(8): error: identifier "y" is undefined' in error.value.log
    assert "cudaMalloc" not in error.value.log


def test_lines_and_what_is_for_the_device_stay():
    text = (
        HOST["main"] + HELPER + "struct Size { int m, n; };\nconstexpr int K[] = {1, 2};\n" + KERNEL
    )
    everything = range(1, 1 + text.count("\n"))
    rest, names = without_host_code(text, everything)
    assert names == ("main", "ceil_to")
    assert rest.count("\n") == text.count("\n") and rest.endswith(KERNEL)
    assert "struct Size" in rest and "constexpr int K" in rest
    assert without_host_code(text, [2])[1] == ("main",)
    assert without_host_code(text, [])[0] == text


def test_an_older_nvrtc_takes_the_headers_of_a_toolkit(monkeypatch, tmp_path):
    def missing(*_):
        raise RuntimeError("function nvrtcInstallBundledHeaders is not found")

    monkeypatch.setattr(headers, "_bundled", missing)
    monkeypatch.setattr(headers, "_installed", lambda: [tmp_path / "include"])
    found = headers.include_paths("#include <mma.h>", "kernel.cu", None, "13.0")
    assert found[1:] == [tmp_path / "include"]
