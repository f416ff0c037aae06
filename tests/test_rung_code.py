"""What the compiler makes of rungs: resources, and the instructions that their lessons promise."""

from __future__ import annotations

import re

import pytest
from configurations import quickest

from gemmlab.compile import cute, load
from gemmlab.compile.artifact import Artifact
from gemmlab.cubin import tools
from gemmlab.kernels import ladder

NAMES = [
    rung.name for rung in ladder.rungs() if not rung.launches and not rung.arch
]  # for every GPU
# A layout changes the addresses of a kernel: each rung is compiled in both. An architecture changes
# what becomes of its PTX: that of each kernel is assembled for one of two others.
TARGETS = [(name, layout) for name in NAMES for layout in ("row", "course")]
OTHERS = ["sm_80", "sm_100a"]
KERNELS = {rung.kernel: rung.name for rung in reversed(ladder.rungs()) if rung.name in NAMES}
STATIC_SMEM = {"naive": 0, "uncoalesced": 0, "tile-1d": 4096, "tile-2d-4x4-bk32": 32768}
STATIC_SMEM |= {"padded": 2 * 4 * 8 * 148, "warp-tile": 2 * 4 * 8 * 132}
STATIC_SMEM |= dict.fromkeys(["double-buffer", "rasterized"], 2 * 2 * 4 * 8 * 132)
STATIC_SMEM["split-k"] = STATIC_SMEM["rasterized"] + 16  # and the ticket
STATIC_SMEM["async-copy"] = 0  # all shared memory is dynamic


def count(artifact: Artifact, opcode: str) -> int:
    return len(re.findall(rf"\b{re.escape(opcode)}(?=\s)", artifact.ptx))


@pytest.mark.parametrize(
    ("name", "arch"), [(name, OTHERS[n % 2]) for n, name in enumerate(KERNELS.values())]
)
@pytest.mark.slow
def test_kernels_for_every_gpu_assemble(name: str, arch: str) -> None:
    text = load(name).ptx.replace(".target sm_90a", f".target {arch}")
    artifact = load(text, arch=arch)
    assert artifact.arch == arch and f".target {arch}" in artifact.ptx
    assert artifact.cubin is not None and artifact.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(("name", "arch"), [("naive", "sm_80"), ("async-copy", "sm_100a")])
@pytest.mark.slow
def test_kernels_for_every_gpu_compile(name: str, arch: str) -> None:
    """To the same PTX for earlier architectures. For later ones it has other instructions."""
    rung = quickest(ladder.find(name))
    compiled, known = cute.compile_rung(rung, arch), cute.compile_rung(rung)
    assert compiled.cubin is not None and compiled.cubin.startswith(b"\x7fELF")
    # The cache may have either kernel from another checkout, whose paths the PTX names.
    old, new = (
        [line for line in x.ptx.splitlines() if not line.strip().startswith(".file")]
        for x in (known, compiled)
    )
    same = [line.replace(".target sm_90a", f".target {arch}") for line in old] == new
    assert compiled.arch == arch and same == (arch == "sm_80")


@pytest.mark.parametrize(("name", "layout"), TARGETS)
@pytest.mark.slow
def test_rungs_for_every_gpu_compile(name: str, layout: str) -> None:
    artifact = load(name, layout=layout)
    rung = ladder.find(name, layout)
    assert artifact.arch == "sm_90a" and ".target sm_90a" in artifact.ptx
    assert artifact.cubin is not None and artifact.cubin.startswith(b"\x7fELF")
    assert artifact.block == rung.geometry(rung.config, {"m": 1, "n": 1, "k": 1}).block
    assert artifact.origin == ladder.label(rung)
    assert artifact.versions == {"nvidia-cutlass-dsl": cute.versions()["nvidia-cutlass-dsl"]}

    sizes = {"float32": 8, "int32": 4, "int64": 8}
    parameters = cute.parameters(rung)
    assert [p.size for p in artifact.parameters] == [sizes[p.dtype] for p in parameters]
    assert [p.alignment for p in artifact.parameters] == [sizes[p.dtype] for p in parameters]
    assert all(p.is_pointer for p in artifact.parameters[:3])

    used = artifact.resources
    assert used is not None
    assert used.spill_bytes == 0
    assert used.static_smem_bytes == STATIC_SMEM.get(name, 8192)
    threads = artifact.block[0] * artifact.block[1]
    assert used.registers * threads <= 65536


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_arithmetic_is_one_fma_per_k(name: str, layout: str) -> None:
    """No separate multiply or add, so that every rung gives the same bits."""
    artifact = load(name, layout=layout)
    opcodes = set(re.findall(r"\b(\w+)\.(?:rn\.)?f32\b", artifact.ptx))
    assert opcodes == ({"fma", "add"} if name == "split-k" else {"fma"})  # it adds the slices
    assert count(artifact, "ld.local.b32") == 0


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.slow
def test_tiled_rungs_fit_two_blocks_and_float4_is_wide(layout: str) -> None:
    scalar, wide = (load(name, layout=layout) for name in ("tile-2d-8x8", "float4"))
    for artifact in (scalar, wide):
        assert artifact.resources is not None and artifact.resources.registers <= 128
        assert count(artifact, "fma.rn.f32") == 8 * 8 * 8
        assert count(artifact, "ld.shared.v4.b32") == 32
    assert count(scalar, "ld.global.v4.b32") == count(scalar, "st.global.v4.b32") == 0
    assert count(wide, "ld.global.v4.b32") == 2
    assert count(wide, "st.global.v4.b32") == 16
    assert wide.cubin is not None
    code = tools.sass(wide.cubin, wide.entry)
    for opcode, times in {"LDG.E.128": 2, "STG.E.128": 16, "LDS.128": 32}.items():
        assert len(re.findall(rf"\b{re.escape(opcode)}\b", code)) == times


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.parametrize("name", NAMES[NAMES.index("float4-transposed-a") : -1])
@pytest.mark.slow
def test_fragments_are_read_by_128_bit_loads_alone(name: str, layout: str) -> None:
    artifact = load(name, layout=layout)
    assert artifact.resources is not None and artifact.resources.registers <= 128
    assert artifact.cubin is not None
    code = tools.sass(artifact.cubin, artifact.entry)
    # Two loads of A and two of B in each of eight steps; two loops if whole tiles have their own.
    loops = count(artifact, "fma.rn.f32") // (8 * 8 * 8)
    loads = re.findall(r"\bLDS(?:\.\d+)?(?= R\d)", code)  # ptxas adds some with target RZ
    assert loads == ["LDS.128"] * 32 * loops
    copies = count(artifact, "cp.async.ca.shared.global")
    assert len(re.findall(r"\bLDG\.E\.128\b", code)) == (0 if copies else 2 * loops)
    assert len(re.findall(r"\bLDGSTS\.E(?:\.128)?\b", code)) == copies
