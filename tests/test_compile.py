"""Source to Artifact: rungs, CUDA C++, PTX, the cache, and errors. Needs no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from cutlass._mlir_helpers import op

from gemmlab.compile import (
    cache,
    compiler_process,
    cute,
    cute_positions,
    declarations,
    load,
    nvrtc,
    ptx,
    resources,
)
from gemmlab.compile.artifact import Artifact, Resources
from gemmlab.core import disk_cache
from gemmlab.errors import CompileError, DTypeError, InputError, PtxSyntaxError, UnknownNameError
from gemmlab.kernels import ladder

CUDA = """
#include <cuda_runtime.h>
template <int N> __global__ void scale(float* x, float s) {
  __shared__ float tile[N];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s * tile[N - 1 - threadIdx.x];
}
__global__ void add(const float* a, float* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] += a[i];
}
extern "C" __global__ void fill(float* a) { a[threadIdx.x] = 1.0f; }
"""


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEMMLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cuda_file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.cu"
    path.write_text(CUDA)
    return path


def test_line_numbers_lead_to_the_kernel_file() -> None:
    files = re.findall(r'\.file\s+\d+\s+"([^"]+)"', load("naive").ptx)
    assert any(file.endswith("naive.py") for file in files)


def test_each_place_in_the_code_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PTX, including line numbers, and machine code are the same as with the DSL's own lookups."""
    find, places = op._fast_frameinfo, []

    def look_up(frame: FrameType) -> object:
        places.append((frame.f_code, frame.f_lasti))
        return find(frame)

    def compiled() -> Artifact:
        rung = ladder.find("shared")
        block = rung.geometry(rung.config, {"m": 1, "n": 1, "k": 1}).block
        own = cute.parameters(rung)
        return cute.compile_kernel(rung.kernel, own, rung.config, block, "k", "sm_90a")

    monkeypatch.setattr(op, "_fast_frameinfo", look_up)
    artifact = compiled()
    assert len({*places}) == len(places) and op._fast_frameinfo is look_up
    once = len(places)
    monkeypatch.setattr(cute_positions, "found_once", nullcontext)
    assert compiled() == artifact and len(places) > 2 * once


def test_second_call_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("shared")

    def fail(*args: object, **kwargs: object) -> Artifact:
        raise AssertionError("compiled again")

    monkeypatch.setattr(cute, "compile_kernel", fail)
    assert load("shared") == first
    assert cute.compile_rung(ladder.find("shared"), "sm_90a") == first


@pytest.mark.slow
def test_second_process_imports_no_compiler() -> None:
    load("naive")
    code = (
        "import sys; from gemmlab.compile import load; load('naive')\n"
        "print({'cutlass', 'cuda'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("damage", ["", "{}", "half", "flipped"])
def test_corrupt_cache_entries_are_built_again(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    built: list[Artifact] = []

    def build() -> Artifact:
        built.append(Artifact("k", ".version 8.8", "sm_90a", (), cubin=b"\x7fELF", block=(1, 2, 3)))
        return built[-1]

    assert cache.fetch(["a"], build, "k") == cache.fetch(["a"], build, "k")
    assert cache.fetch(["b"], build, "k") is built[-1] and len(built) == 2
    (file, _) = files = sorted(tmp_path.iterdir())
    for file in files:
        text = file.read_text()
        broken = {"half": text[: len(text) // 2], "flipped": text.replace("8.8", "8.9")}
        file.write_text(broken.get(damage, damage))
    assert cache.fetch(["a"], build, "k") == built[0] and len(built) == 3
    assert cache.fetch(["a"], build, "k") == built[0] and len(built) == 3


def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path / "file" / "below"))
    artifact = Artifact("k", "", "sm_90a", ())
    assert cache.fetch(["a"], lambda: artifact, "k") is artifact


@pytest.mark.parametrize(
    ("entry", "found", "smem"),
    [
        ("fill", "fill", 0),
        ("add", "_Z3addPKfPfi", 0),
        ("_Z3addPKfPfi", "_Z3addPKfPfi", 0),
        ("scale<128>", "_Z5scaleILi128EEvPff", 512),
    ],
)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_cuda_entries(cuda_file: Path, entry: str, found: str, smem: int, arch: str) -> None:
    artifact = load(cuda_file, entry=entry, arch=arch)
    assert (artifact.entry, artifact.arch) == (found, arch)
    assert artifact.resources is not None
    assert artifact.resources.static_smem_bytes == smem
    assert "nvrtc" in artifact.versions
    assert "kernels.cu" in artifact.ptx


def test_cuda_headers_need_no_toolkit(tmp_path: Path) -> None:
    path = tmp_path / "half.cu"
    path.write_text("#include <cuda_fp16.h>\n__global__ void k(__half* x) { *x = __hadd(*x, *x); }")
    assert load(path).entry.startswith("_Z1k")


def test_included_files_are_read_anew(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }')
    for value in ("1234", "4321"):
        (tmp_path / "value.h").write_text(f"#define VALUE {value}")
        assert value in load(tmp_path / "k.cu").ptx


@pytest.mark.parametrize("name", ["kérnel x", os.fsdecode(b"\xff\xfe")])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "value.h").write_text("#define VALUE 7")
    path = folder / f"{name}.cu"
    path.write_text('#include "value.h"\n__global__ void k(int* x) { *x = VALUE; }')
    assert load(path).entry == "_Z1kPi"


def test_cuda_that_does_not_compile_shows_the_log() -> None:
    with pytest.raises(CompileError, match="expected an expression") as caught:
        nvrtc.compile_cuda("__global__ void f() { int x = ; }", name="bad.cu")
    assert "bad.cu(1): error" in caught.value.log


@pytest.mark.slow
def test_ptx_text_and_file(tmp_path: Path) -> None:
    text = load("naive", arch="sm_80").ptx
    (tmp_path / "naive.ptx").write_text(text)
    for source in (text, tmp_path / "naive.ptx", str(tmp_path / "naive.ptx")):
        artifact = load(source)
        assert (artifact.arch, artifact.block) == ("sm_80", (32, 32, 1))
        assert len(artifact.parameters) == 9
    if ptx.assembler_version() is not None:
        assert load(text, arch="sm_90a").cubin is not None
        with pytest.raises(CompileError, match="cannot be assembled for sm_75"):
            load(text, arch="sm_75")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The requests to the compiler process."""
    requests: list[dict[str, Any]] = []
    ask = compiler_process.ask

    def noted(**request: Any) -> dict[str, str]:
        requests.append(request)
        return ask(**request)

    monkeypatch.setattr(compiler_process, "ask", noted)
    return requests


def test_the_entries_of_a_file_are_assembled_once(asked: list[dict[str, Any]]) -> None:
    entries = "".join(f".visible .entry k{i}() {{ ret; }}\n" for i in range(3))
    text = f".version 8.0\n.target sm_90\n.address_size 64\n// {id(asked)}\n{entries}"
    assert len({load(text, entry=f"k{i}").cubin for i in range(3)}) == 1
    assert len(asked) == 1


def test_kernels_of_a_cuda_file_are_compiled_once(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    text = "".join(
        f'extern "C" __global__ void k{i}(float* x{i}) {{ *x{i} = {i}; }}\n' for i in (1, 2)
    )
    found = [load(text, entry=f"k{i}") for i in (1, 2, 1)]
    assert [(f.entry, f.parameters[0].name) for f in found] == [
        ("k1", "x1"),
        ("k2", "x2"),
        ("k1", "x1"),
    ]
    assert len(asked) == 1  # with the types of the parameters
    assert load(text, entry="k2", arch="sm_80").arch == "sm_80"  # another request
    assert len(asked) == 2


NAMED = 'extern "C" __global__ void k(float* x, unsigned char n) { *x = n; }'


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        (NAMED, 1),
        ("// __global__ void old(\n" + NAMED, 1),
        ('__device__ const char* s = "__global__ void text(int i)";\n' + NAMED, 1),
        ("#if 0\n__global__ void off(int i) {}\n#endif\n" + NAMED, 1),
        ("#define DECLARE(f) __global__ void f(float* x)\nDECLARE(m);\n" + NAMED, 1),
        ("template <int n> __global__ void t(int* x) { *x = n; }\n" + NAMED, 1),
        ("namespace lab { __global__ void k2(int* x) { *x = 1; } }\n" + NAMED, 1),
        ("namespace lab {\n" + NAMED + "\n}", 1),
        ("__global__ void two(int* x) {}\n__global__ void two(float* x) {}\n" + NAMED, 1),
        ("struct S {\n  friend __global__ void f(S s);\n};\n" + NAMED, 1),
        ("#define NONE __global__ void gone(\n" + NAMED, 1),
        ("__global__ void hidden(int i);\n#define hidden 0\n" + NAMED, 2),  # a wrong question
    ],
)
def test_types_of_parameters_are_asked_together_with_the_code(
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    text: str,
    requests: int,
) -> None:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    found = load(text, entry="k" if "lab {\n" not in text else "lab::k")
    assert [(p.name, p.dtype) for p in found.parameters] == [("x", "float32"), ("n", "uint8")]
    assert len(asked) == requests


def test_kernels_that_a_macro_names_are_asked_about_once(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    text = '#define K(name, type) extern "C" __global__ void name(type* x) {}\n'
    text += "K(one, int) K(two, float) K(three, double)"
    found = [load(text, entry=name).parameters[0].dtype for name in ("one", "two", "three")]
    assert found == ["int32", "float32", "float64"]
    assert [request["only_log"] for request in asked] == [False, True]


@pytest.mark.parametrize("word", ["__global__ ", "__global__ f(", "__a__(", '"', "#define \\\n"])
def test_kernels_are_found_in_any_text_in_a_moment(word: str) -> None:
    started = time.process_time()
    assert declarations.kernels(word * 10_000) == []
    assert time.process_time() - started < 1


@pytest.mark.parametrize("text", ["int i; *x = M;", "*x = M; }\n#if 1\n{", "*x = M; } {"])
def test_errors_are_those_of_the_source_alone(text: str) -> None:
    with pytest.raises(CompileError) as raised:
        load(f"__global__ void k(float* x) {{ {text} }}\n")
    assert 'error: identifier "M" is undefined' in raised.value.log
    assert "gemmlab" not in raised.value.log


def test_ptx_without_an_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ptx, "assembler_version", lambda: None)
    artifact = load(load("naive").ptx)
    assert (artifact.cubin, artifact.resources) == (None, None)
    assert artifact.arch == "sm_90a"


ALIGNED = """.version 8.0
.target sm_90
.address_size 64
.shared .align 8 .b64 one;
.extern .shared .align 1024 .b8 many[];
.visible .entry k() {
  .reg .b32 %r;
  mov.u32 %r, many; st.shared.u32 [%r], %r; st.shared.u32 [one], %r; ret;
}
"""


@pytest.mark.parametrize(("static_bytes", "is_kept"), [(16, False), (1024, True)])
def test_a_cubin_must_align_dynamic_shared_memory_as_the_ptx_does(
    static_bytes: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """nvJitLink 13.0 puts `many` at byte 16. The driver's own assembler does not."""
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    used = Resources(registers=8, spill_bytes=0, static_smem_bytes=static_bytes)
    monkeypatch.setattr(resources, "read", lambda *_: used)
    assert (load(ALIGNED).cubin is not None) == is_kept


def test_threads_build_one_after_the_other_and_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    building: list[str] = []
    built: list[str] = []

    def fetch(name: str) -> None:
        def build() -> Artifact:
            building.append(name)
            time.sleep(0.05)
            assert building == [name]
            building.remove(name)
            built.append(name)
            return ptx.describe(ALIGNED)

        cache.fetch([name], build, name)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(fetch, "aabbcc"))
    assert sorted(built) == ["a", "b", "c"]


def test_ptx_syntax_error_names_the_line() -> None:
    lines = load("naive").ptx.splitlines()
    at = next(i for i, line in enumerate(lines) if "mov.u32" in line)
    lines[at] = "\tmov.u32 %r1 %tid.x;"
    with pytest.raises(PtxSyntaxError) as caught:
        load("\n".join(lines))
    assert caught.value.line == at + 1


def test_what_does_not_exist_is_named(cuda_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no file nowhere.cu"):
        load("nowhere.cu")
    with pytest.raises(UnknownNameError, match="Did you mean 'naive'"):
        load("naiv")
    with pytest.raises(UnknownNameError, match="2 entries, choose one of: _Z3addPKfPfi, fill"):
        load(cuda_file)
    with pytest.raises(UnknownNameError, match="no entry 'sub'; it has _Z3addPKfPfi, fill"):
        load(cuda_file, entry="sub")
    with pytest.raises(UnknownNameError, match="no entry 'x'; it has gemm_naive_row"):
        load(load("naive").ptx, entry="x")
    for source in ("naive", cuda_file):
        with pytest.raises(UnknownNameError, match=r"'sm_1'; choose one of .*sm_90a"):
            load(source, arch="sm_1")
    (tmp_path / "empty.cu").write_text("__device__ int x;")
    with pytest.raises(UnknownNameError, match="has no kernel entry"):
        load(tmp_path / "empty.cu")


def test_arguments_that_do_not_fit_the_source(cuda_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="only a rung has a layout"):
        load(cuda_file, entry="fill", layout="row")
    with pytest.raises(InputError, match="the rung 'naive' has one kernel"):
        load("naive", entry="kernel")
    with pytest.raises(InputError, match=r"is not a kernel file: .cu, .cuh, .ptx, .py"):
        load(tmp_path / "kernel.txt")
    with pytest.raises(UnknownNameError, match="no rung"):
        load("x" * 10000)  # longer than a path may be
    wrong: Any = 3
    with pytest.raises(DTypeError, match="entry is 3; it must be the name of a kernel"):
        load(cuda_file, entry=wrong)
    others: list[Any] = [3, {1: 2}]
    for settings in others:
        with pytest.raises(DTypeError, match="they must be values by name"):
            load("naive", settings=settings)


def test_ptx_may_end_without_a_new_line() -> None:
    """Such text crashed nvJitLink 13 where the length was divisible by eight, as here."""
    text = (
        "\n\n\n\n\n\n\n\n\n.version 8.3\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 k_param_0)\n{\n.reg .b32 %r<20>; .reg .b64 %rd<10>; "
        ".reg .pred %p<4>; .reg .b16 %rs<5>; .reg .f32 %f<4>;\nld.param.u64 %rd1, [k_param_0];\n"
        "mov.u32 %r1, %smid; cvt.u64.u32 %rd2, %r1;\nst.global.u64 [%rd1], %rd2;\nret;\n}"
    )
    assert len(text) % 8 == 0 and load(text).cubin


def test_resources_name_what_the_cubin_has() -> None:
    artifact = load("naive")
    assert artifact.cubin is not None
    with pytest.raises(UnknownNameError, match="it has gemm_naive_row"):
        resources.read(artifact.cubin, "other", "sm_90a")
    with pytest.raises(CompileError, match="could not read the cubin"):
        resources.read(b"no cubin", "other", "sm_90a")


def test_partial_files_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))
    abandoned, current = tmp_path / ".part-abandoned", tmp_path / ".part-current"
    for path in (abandoned, current):
        path.touch()
    os.utime(abandoned, (0, 0))
    disk_cache.save("name", b"data")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".part-current", "name"]
