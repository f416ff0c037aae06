"""Findings name threads, elements and lines, and say how to repair the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmlab.cli.app import main
from gemmlab.core.symbols import demangled
from gemmlab.emulator.checks import advice
from gemmlab.errors import Site
from gemmlab.lab import kernel_file
from gemmlab.lab.directives import Directive
from gemmlab.lab.directives.dimensions import with_indices

HEAD = "//! gemmlab args=x:f32[1024]=arange,y:f32[1024]=zeros block={block} grid={grid}\n"
SIGNATURE = "__global__ void k(const float* x, float* y) {\n"
# Block, grid, body from line 3 on, kind, and message.
CASES = {
    "neighbour": (
        "64",
        1,
        "__shared__ float s[64];\nint t = threadIdx.x;\ns[t] = x[t];\ny[t] = s[(t + 1) % 64];\n",
        "shared race",
        "thread 0 reads s[1] at line 6, thread 1 writes it at line 5, no barrier between: put "
        "`__syncthreads()` after line 5",
    ),
    "next iteration": (
        "64",
        1,
        "__shared__ float s[64];\nint t = threadIdx.x;\nfor (int k = 0; k < 4; ++k) {\n"
        "s[t] = x[k * 64 + t];\n__syncthreads();\ny[k * 64 + t] = s[63 - t];\n}\n",
        "shared race",
        "thread 0 writes s[0] at line 6, thread 63 reads it at line 8, no barrier between: put "
        "`__syncthreads()` after line 8",
    ),
    "one warp": (
        "32",
        1,
        "__shared__ float s[32];\nint t = threadIdx.x;\ns[t] = x[t];\ny[t] = s[31 - t];\n",
        "shared race",
        "thread 0 reads s[31] at line 6, thread 31 writes it at line 5, no barrier between: put "
        "`__syncwarp()` after line 5",
    ),
    "two dimensions": (
        "32,8",
        1,
        "__shared__ float tile[32][33];\nint t = threadIdx.x, r = threadIdx.y;\n"
        "tile[r][t] = x[r * 32 + t];\ny[r * 32 + t] = tile[(r + 1) % 8][t];\n",
        "shared race",
        "thread 0 reads tile[1][0] at line 6, thread 32 writes it at line 5, no barrier between: "
        "put `__syncthreads()` after line 5",
    ),
    "a scalar": (
        "64",
        1,
        "__shared__ float last;\nint t = threadIdx.x;\nlast = x[t];\n__syncthreads();\n"
        "y[t] = last;\n",
        "shared race",
        "thread 0 writes last at line 5, thread 63 writes it at line 5: give each thread its own "
        "element, or use an atomic operation",
    ),
    "blocks": (
        "32",
        2,
        "int t = threadIdx.x;\nif (t == 0) y[3] = x[blockIdx.x + 1];\n",
        "global race",
        "thread 0 of block (1, 0, 0) writes y[3] at line 4, block (0, 0, 0) writes it at line 4, "
        "nothing orders blocks: use an atomic operation, or give each block its own element",
    ),
    "uninitialized": (
        "64",
        1,
        "__shared__ float s[2][64];\nint t = threadIdx.x;\ns[0][t] = x[t];\n__syncthreads();\n"
        "y[t] = s[0][t] + s[1][63 - t];\n",
        "uninitialized read",
        "thread 0 reads s[1][63] at line 7, which was never written; the value is stored to global "
        "memory at line 7: initialize it first",
    ),
    "out of bounds": (
        "64",
        3,
        "int i = blockIdx.x * 64 + threadIdx.x;\ny[8 * i] = x[i];\n",
        "out of bounds",
        "thread 0 writes y[1024] at line 4, 4 bytes past the end of y (4096 bytes): guard the "
        "access, or allocate more",
    ),
    "out of shared memory": (
        "64",
        1,
        "__shared__ float s[64];\nint t = threadIdx.x;\ns[t + 1] = x[t];\ny[t] = s[t];\n",
        "out of bounds",
        "thread 63 writes s[64] at line 5, the block has 256 bytes of shared memory: guard the "
        "access, or allocate more",
    ),
    "null pointer": (
        "1",
        1,
        "float* p = reinterpret_cast<float*>(static_cast<long long>(x[0]));\n*p = 1;\n",
        "out of bounds",
        "thread 0 writes at line 4, through a null pointer: guard the access, or allocate more",
    ),
    "misaligned": (
        "32",
        1,
        "y[threadIdx.x] = reinterpret_cast<const float4*>(x + 1)->x\n"
        "+ reinterpret_cast<const float4*>(x + 1)->w;\n",
        "misaligned",
        "thread 0 reads x[1] at line 3, address 0x7f0000000004 is not a multiple of the access "
        "width, 16 bytes: access single elements, or align the index",
    ),
    "divergent barrier": (
        "32",
        1,
        "if (threadIdx.x < 16) {\n__syncthreads();\n} else {\ny[0] = 1;\n__syncthreads();\n}\n",
        "divergent barrier",
        "thread 0 waits at line 4, thread 16 of the same warp at line 7: use one barrier for both, "
        "outside the branch",
    ),
    "threads that left": (
        "64",
        1,
        "if (threadIdx.x == 40) return;\n__syncthreads();\ny[threadIdx.x] = 1;\n",
        "divergent barrier",
        "1 of the block's 64 threads have exited and will not reach line 4: let all threads reach "
        "the barrier",
    ),
    "lanes": (
        "32",
        1,
        "y[threadIdx.x / 2] = threadIdx.x;\n",
        "order dependent",
        "threads of one warp write different values to y[0] at line 3: let one thread write, or "
        "give each thread its own element",
    ),
    "order": (
        "32",
        2,
        "y[0] = blockIdx.x;\n",
        "order dependent",
        "1 element differs when warps run in another order (reversed), the first is y[0]",
    ),
    "never written": (
        "32",
        1,
        "__shared__ int count;\natomicAdd(&count, 1);\n__syncthreads();\ny[0] = count;\n",
        "uninitialized read",
        "thread 0 updates count at line 4, which was never written: initialize it first",
    ),
    "block scope": (
        "1",
        2,
        "atomicAdd_block(y, x[0]);\n",
        "global race",
        "thread 0 of block (0, 0, 0) updates y[0] at line 3 atomically for its block only, block "
        "(1, 0, 0) updates it at line 3: use an atomic operation of scope gpu",
    ),
    "half a warp": (
        "32",
        1,
        "int t = threadIdx.x;\nfloat v = x[t];\n"
        "if (t < 16) {\nv += __shfl_down_sync(0xffffffff, v, 8);\n}\ny[t] = v;\n",
        "warp participation",
        "lanes 0 to 15 at __shfl_down_sync: mask 0xffffffff includes lanes 16 to 31, which took "
        "another path and exited: move it out of the branch, or pass the mask of the lanes inside",
    ),
}


def kernel(folder: Path, block: str, grid: int, body: str) -> Path:
    path = folder / "k.cu"
    path.write_text(HEAD.format(block=block, grid=grid) + SIGNATURE + body + "}\n")
    return path


@pytest.mark.parametrize("name", CASES)
def test_what_a_finding_says(name: str, tmp_path: Path) -> None:
    block, grid, body, kind, message = CASES[name]
    path = kernel(tmp_path, block, grid, body)
    findings = kernel_file.run(path, Directive(), check="all").run.findings
    assert message in [f.message for f in findings if f.kind == kind]


def test_a_copy_that_was_not_waited_for(tmp_path: Path) -> None:
    body = (
        "__shared__ float s[32];\nint t = threadIdx.x;\n"
        "__pipeline_memcpy_async(s + t, x + t, 4);\n__pipeline_commit();\ny[t] = s[t];\n"
    )
    path = kernel(tmp_path, "32", 1, body)
    path.write_text(path.read_text().replace("\n", "\n#include <cuda_pipeline.h>\n", 1))
    (first, *_) = kernel_file.run(path, Directive(), check="copies").run.findings
    assert first.kind == "missing wait" and first.message.startswith("thread 0 reads s[0] at line")
    assert "the asynchronous operation of thread 0, started at line" in first.message
    assert "may still be writing it: wait for its completion before line" in first.message


def test_the_barrier_of_each_language() -> None:
    ptx, python = Site(9, "st.shared"), Site(9, "st.shared", "/home/kernel.py:7")
    assert advice.barrier("block", ptx) == "`bar.sync 0`" and advice.line(ptx) == "PTX line 9"
    assert advice.barrier("warp", python) == "a barrier of the warp"
    assert advice.line(python) == "line 7"


def test_indices_follow_the_declaration() -> None:
    source = "constexpr int BK = 8;\n#define N 4\n__shared__ float a[BK + 1][N], b[3];\n"
    assert with_indices("a[5] and b[2]", source) == "a[1][1] and b[2]"
    assert with_indices("a[36]", source) == "a[36]"  # past the end
    assert with_indices("c[5]", "__shared__ int c[M][2];") == "c[5]"


def test_names_of_kernels() -> None:
    assert demangled("_Z9neighbourPKfPfi") == "neighbour(float const*, float*, int)"
    assert demangled("k") == "k" and demangled("_Znonsense") == "_Znonsense"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "communicates"), [("neighbour", True), ("copy", False)])
def test_the_hint_at_the_checks(
    name: str, communicates: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block, grid, body, *_ = CASES.get(name, ("32", 1, "y[threadIdx.x] = x[threadIdx.x];\n"))
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(kernel(tmp_path, str(block), int(str(grid)), str(body)))])
    assert not ended.value.code
    out = capsys.readouterr().out
    assert ("--check all finds races" in out) == communicates
    assert out.startswith("k(float const*, float*): grid")
