"""Every rung of every ladder: all shapes, input families and layouts, on every device."""

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from configurations import has_its_own_code, narrowest
from machine import DEVICES, needs_gpu, needs_native

from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.devices import Span, open_device
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.errors import InputError
from gemmlab.kernels import ladder
from gemmlab.lab import judge
from gemmlab.lab.climb import has_undocumented_bits
from gemmlab.linalg.runtime.executor import chained
from gemmlab.problems.gemm import GemmCase

# Per problem: the first shape is run with every family, the others with the first family. One
# element, one below and above a tile, primes, thin, tall, and zero if the problem allows it.
SHAPES = {name: problems.find(name).judged.small for name in problems.NAMES} | {
    "gemm": (
        *((67, 35, 19), (1, 1, 1), (33, 130, 17), (129, 130, 9)),
        *((128, 128, 32), (1, 77, 5), (131, 1, 40)),
    ),
    "transpose": ((67, 130), (1, 1), (63, 65), (64, 128), (1, 301), (257, 1), (0, 3), (3, 0)),
    "sum": ((5003,), (1,), (255,), (1023,), (1024,), (1025,), (2**15,), (0,)),
    "histogram": ((8209,), (1,), (31,), (8191,), (2**15,), (0,)),
    "vector-add": ((5003,), (1,), (255,), (257,), (4097,), (2**15,), (0,)),
}
CASES = [
    (name, shape, family)
    for name, shapes in SHAPES.items()
    for shape in shapes
    for family in problems.find(name).families[: None if shape == shapes[0] else 1]
]


pytestmark = pytest.mark.usefixtures("rarely_native")

opened = cache(open_device)


def examined(rung, shape, family="", device="emulated"):
    """The judge's result for one launch of a rung, on a device, given itself or its name."""
    target = opened(device) if isinstance(device, str) else device
    problem = problems.find(rung.problem)
    sizes = dict(zip(problem.axes, shape, strict=True))
    case = problem.case(sizes, rung.layout, family or problem.families[0], seed=0)
    artifact = compile_rung(rung, target.arch)
    if rung.program is not None:
        return judge.examine_flow(target, artifact, rung.program, problem, case)
    geometry = rung.geometry(rung.config, case.shape)
    workspace = rung.workspace and rung.workspace(rung.config, case.shape)
    own = chained(target, rung, case.shape)
    return judge.examine(own, artifact, geometry, problem, case, workspace)


def counters(name, shape, family=""):
    return examined(ladder.find(name), shape, family).launched.counters


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "shape", "family"), CASES)
@pytest.mark.slow
def test_every_rung_is_right(name, shape, family, device):
    """Neighbours in the ladder have different layouts, and each rung another one per case.

    They share most of their code. On a GPU, each rung is run in all layouts. Operands that are
    packed are alike in all layouts, where only the stores differ: rungs that pack have a small tile
    in the course layout, which compiles sooner, and bf16x6 stands for fp16x3, whose kernel it has.
    The other rungs that differ from an earlier one in sizes alone are run in rows.

    The float32 rungs of gemm give equal bits (`test_every_gemm_rung_gives_the_bits_of_naive`), so
    one in three is run with each further family of inputs.
    """
    layouts, case = problems.find(name).layouts, CASES.index((name, shape, family))
    rungs = [
        ladder.in_layout(rung, layout)
        for number, rung in enumerate(ladder.rungs(name))
        for turn, layout in enumerate(layouts)
        if device == "cuda" or (number + case + turn) % len(layouts) == 0
    ]
    if device != "cuda":
        rungs = [r for r in rungs if (r.name, r.layout) != ("fp16x3", "course")]
        rungs = [narrowest(r) if r.launches and r.layout == "course" else r for r in rungs]
        rungs = [
            r if r.launches or has_its_own_code(r) else ladder.in_layout(r, layouts[0])
            for r in rungs
        ]
    if name == "gemm" and family != problems.find(name).families[0] and device != "cuda":
        rungs = [rung for n, rung in enumerate(rungs) if rung.launches or (n + case) % 3 == 0]
    if family == "wide":  # see `test_float16_parts_lose_wide_rows`
        rungs = [rung for rung in rungs if rung.launches is None or rung.name == "bf16x6"]
    sizes = dict(zip(problems.find(name).axes, shape, strict=True))
    rungs = [rung for rung in rungs if not rung.requires(rung.config, sizes)]
    verdicts = [(rung, examined(rung, shape, family, device).verdict) for rung in rungs]
    assert [(r.name, r.layout, v.message) for r, v in verdicts if not v.passed] == []


FLOAT16_RUNGS = (
    *("tensor-core", "tensor-core-pipelined", "wgmma", "wgmma-tma"),
    *("warp-specialized", "short-chains", "fp16x3"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOAT16_RUNGS)
def test_float16_parts_lose_wide_rows(name):
    assert examined(ladder.find(name), SHAPES["gemm"][0], "wide").verdict.status == "wrong answer"


@pytest.mark.slow
def test_the_stairs_give_the_same_bits_until_chains_are_short():
    """In rows: in the course layout only the packing and the stores differ."""
    shape = 36, 40, 200  # a remainder in every axis, several tiles of k
    found = [examined(ladder.find(name), shape) for name in FLOAT16_RUNGS]
    one_chain, short = found[:-2], found[-2:]
    for same in (one_chain, short):
        assert len({f.image.tobytes() for f in same}) == 1
    # Truncated in every step of k, or once per 64 of k: the bits come back.
    assert one_chain[0].verdict.max_error_u > 4 * short[0].verdict.max_error_u


class OneNatively(EmulatedDevice):
    """Runs the kernels of the ladder on the native tier, and those of the library on NumPy."""

    def launch(self, artifact, *given, **named):
        self.tier = "native" if artifact.entry.startswith("gemm_") else "numpy"
        return super().launch(artifact, *given, **named)


@needs_native
@pytest.mark.slow
def test_warps_with_roles_run_natively():
    """Copies by tensor map, barriers and wgmma in one kernel: bits and counters of both tiers."""
    rung, shape = narrowest(ladder.find("warp-specialized", "course")), (36, 40, 200)
    devices = EmulatedDevice(tier="numpy"), OneNatively()
    numpy, native = (examined(rung, shape, device=device) for device in devices)
    assert devices[1].tier == "numpy"  # the last launch repairs
    assert native.verdict.passed and native.image.tobytes() == numpy.image.tobytes()
    assert native.launched.counters == numpy.launched.counters


@pytest.mark.slow
def test_a_swizzle_frees_the_banks_for_ldmatrix():
    plain, swizzled = (
        counters(name, (256, 256, 256)) for name in ("tensor-core", "tensor-core-pipelined")
    )
    loads = plain["smsp__inst_executed_op_ldsm.sum"]  # four 8×8 tiles each
    blocks, warps, steps = 4, 8, 256 // 16
    assert loads == swizzled["smsp__inst_executed_op_ldsm.sum"] == blocks * warps * steps * 12
    assert plain[EXCESSIVE] > 3 * 4 * loads and swizzled[EXCESSIVE] == 0


GLOBAL_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
GLOBAL_STORES = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
GLOBAL_STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED_LOADS = "smsp__inst_executed_op_shared_ld.sum"
SHARED_LOAD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_STORE_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
EXCESSIVE = "derived__memory_l1_wavefronts_shared_excessive"
DIVERGENT = "ptx_branch_divergent.sum"


def atomics(counted, space):
    return sum(
        v for k, v in counted.items() if k.startswith(f"smsp__inst_executed_op_{space}_")
    ) - (
        counted[f"smsp__inst_executed_op_{space}_ld.sum"]
        + counted[f"smsp__inst_executed_op_{space}_st.sum"]
    )


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("row", (260, 136, 44)), ("course", (260, 136, 44)), ("row", (1100, 136, 12))],
)
@pytest.mark.slow
def test_every_gemm_rung_gives_the_bits_of_naive(layout, shape):
    """Whole blocks with a remainder in k, and edge blocks. Rungs that compute the tiles group by
    group: also more rows of blocks than one group has."""
    rungs = [ladder.in_layout(rung, layout) for rung in ladder.rungs("gemm")]
    rungs = [rung for rung in rungs if rung.launches is None]  # float32 multiply-adds
    rungs = [rung for rung in rungs if layout == "row" or has_its_own_code(rung)]
    if shape[0] > 1024:
        rungs = [r for r in rungs if r.name == "naive" or getattr(r.config, "group", 1) > 1]
        assert len(rungs) > 4
    found = {rung.name: examined(rung, shape) for rung in rungs}
    assert {name: f.verdict.message for name, f in found.items() if not f.verdict.passed} == {}
    naive = found["naive"].image.view(np.uint32)
    assert [n for n, f in found.items() if (f.image.view(np.uint32) != naive).any()] == []


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.parametrize(("shape", "slices"), [((130, 20, 200), 3), ((3, 5, 1000), 15)])
@pytest.mark.slow
def test_split_k_adds_its_slices_in_the_order_of_k(layout, shape, slices):
    rung, naive = ladder.find("split-k", layout), ladder.find("naive", layout)
    m, n, k = shape
    case: Any = problems.find("gemm").case({"m": m, "n": n, "k": k}, layout, "normal", seed=0)
    step = 2 * rung.config.block_k
    depth = -(-k // (slices * step)) * step
    total = np.zeros((m, n), np.float32)
    for first in range(0, k, depth):
        ks = slice(first, min(first + depth, k))
        sizes = {"m": m, "n": n, "k": ks.stop - ks.start}
        part = GemmCase(sizes, layout, "normal", 0, case.a[:, ks], case.b[ks])
        found = judge.examine(
            opened("emulated"),
            compile_rung(naive),
            naive.geometry(naive.config, sizes),
            problems.find("gemm"),
            part,
        )
        assert found.image is not None
        total += part.result(found.image)

    device = opened("emulated")
    assert rung.workspace is not None
    bytes_needed = rung.workspace(rung.config, case.shape)
    memory = judge.CaseMemory(device, problems.find("gemm"), case, bytes_needed)
    grid, block, dynamic_smem = rung.geometry(rung.config, case.shape)
    assert grid[2] == slices
    for _ in range(2):  # the second launch sees the workspace as the first left it
        device.launch(compile_rung(rung), grid, block, memory.args, dynamic_smem)
        image = memory.guarded["c"].read()[0].view(np.float32)
        np.testing.assert_array_equal(case.result(image), total)


@pytest.mark.parametrize("layout", ["row", "course"])
@pytest.mark.slow
def test_padding_swizzle_and_lanes_take_wavefronts_away(layout):
    blocks, steps, warps = 4, 256, 8  # 256×256×256 in blocks of 128×128
    names = ("float4-transposed-a", "padded", "swizzled", "warp-tile")
    counted = {
        name: examined(ladder.find(name, layout), (256, 256, 256)).launched.counters
        for name in names
    }
    loads = blocks * steps * warps * 4  # LDS.128: two of A and two of B
    assert {c[SHARED_LOADS] for c in counted.values()} == {loads}
    # Wavefronts: A two. B, read two fours apart, eight; adjacent four; shared by lane pairs two.
    waves = {name: c[SHARED_LOAD_WAVEFRONTS] / loads for name, c in counted.items()}
    assert waves == dict(zip(names, (5, 3, 3, 2), strict=True))
    # Per tile of 8 and warp: four stores of A, two wavefronts each; the same for a transposed B.
    stores = blocks * steps // 8 * warps * (4 if layout == "row" else 8)
    before, *after = (c[EXCESSIVE] for c in counted.values())
    assert (before, after) == (loads // 2 * 4 + stores, [0, 0, 0])


@pytest.mark.parametrize(
    ("rung", "store_sectors", "load_wavefronts"),
    [("naive", 32, None), ("shared", 4, 32), ("shared-padded", 4, 1), ("ilp", 4, 1)],
)
def test_transpose_moves_the_stride_from_sectors_to_banks_and_away(
    rung, store_sectors, load_wavefronts
):
    m, n = 128, 192
    counted = counters(f"transpose:{rung}", (m, n))
    warps = m * n // 32
    assert counted[GLOBAL_LOADS] == counted[GLOBAL_STORES] == warps
    assert counted[GLOBAL_LOAD_SECTORS] == 4 * warps
    assert counted[GLOBAL_STORE_SECTORS] == store_sectors * warps
    if load_wavefronts:
        assert counted[SHARED_LOADS] == warps
        assert counted[SHARED_LOAD_WAVEFRONTS] == load_wavefronts * warps
        assert counted[SHARED_STORE_WAVEFRONTS] == warps


THREADS, LEVELS = 1024, 10


def tree_steps(order):
    """Per step of a block's tree: warps that add, lanes adding in each, and words between them."""
    for level in range(LEVELS):
        adding = THREADS >> (level + 1)
        if order == "interleaved":
            lanes = max(32 >> (level + 1), 1)
            yield adding // lanes, lanes, 2 << level
        else:
            lanes = min(adding, 32)
            yield adding // lanes, lanes, 1 if order == "sequential" else 2 << level


@pytest.mark.parametrize("order", ["interleaved", "strided", "sequential"])
def test_trees_differ_in_divergence_and_conflicts_as_they_should(order):
    blocks = 16
    counted = counters(f"tree-{order}", (blocks * THREADS,))
    steps = list(tree_steps(order))
    # Two loads and a store per adding warp; one store and one load frame the tree.
    waves = sum(warps * -(-lanes * min(stride, 32) // 32) for warps, lanes, stride in steps)
    requests = sum(warps for warps, _, _ in steps)
    assert counted[SHARED_LOADS] == blocks * (2 * requests + 1)
    assert counted[SHARED_LOAD_WAVEFRONTS] == blocks * (2 * waves + 1)
    assert counted[SHARED_STORE_WAVEFRONTS] == blocks * (waves + THREADS // 32)
    assert counted[EXCESSIVE] == blocks * 3 * (waves - requests)
    # A warp diverges if some of its lanes add; at the end thread 0 diverges.
    parted = sum(warps for warps, lanes, _ in steps if lanes < 32)
    assert counted[DIVERGENT] == blocks * (parted + 1)


@pytest.mark.slow
def test_a_sum_adds_to_global_memory_once_per_block_or_once_per_element():
    n = 16 * THREADS
    warps = n // 32
    assert atomics(counters("sum:global-atomics", (n,)), "global") == warps
    for rung in ("shared-serial", "tree-interleaved", "tree-sequential", "warp-shuffle"):
        assert atomics(counters(rung, (n,)), "global") == n // THREADS
    assert atomics(counters("deterministic", (n,)), "global") == 1


@pytest.mark.parametrize("blocks", [1, 2, 7])
def test_a_fixed_order_leaves_no_trace_of_the_grid(blocks):
    rung, shape = ladder.find("fixed-order"), (2**17 + 5,)
    other = replace(rung, config=replace(rung.config, blocks=blocks))
    assert examined(rung, shape).image.tobytes() == examined(other, shape).image.tobytes()


@pytest.mark.parametrize(("blocks", "stages"), [(1, 2), (2, 4), (3, 3), (5, 1)])
def test_bulk_copies_go_round_the_ring(blocks, stages):
    rung = ladder.find("bulk-copies")
    other = replace(rung, config=replace(rung.config, blocks=blocks, stages=stages))
    assert examined(other, (260, 196)).verdict.passed


def test_4x4_tiles_quarter_the_requests_without_conflicts():
    narrow, wide = (counters(f"transpose:{name}", (128, 192)) for name in ("ilp", "register-tiles"))
    assert narrow[GLOBAL_LOADS] == 4 * wide[GLOBAL_LOADS]
    assert narrow[GLOBAL_STORES] == 4 * wide[GLOBAL_STORES]
    assert narrow[GLOBAL_LOAD_SECTORS] == wide[GLOBAL_LOAD_SECTORS]
    assert narrow[GLOBAL_STORE_SECTORS] == wide[GLOBAL_STORE_SECTORS]
    assert wide[EXCESSIVE] == 0


def test_bulk_copies_leave_no_global_access_to_threads():
    counted = counters("bulk-copies", (128, 192))
    assert counted[GLOBAL_LOADS] == counted[GLOBAL_STORES] == 0
    rows_in, rows_out = 128 * 192 // 64, 192 * 128 // 64
    bytes_in = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
    bytes_out = "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"
    assert (counted[bytes_in], counted[bytes_out]) == (256 * rows_in, 256 * rows_out)


@pytest.mark.parametrize("family", problems.find("histogram").families)
def test_a_column_of_counters_per_lane_has_no_conflict_whatever_the_data(family):
    n = 2**16
    waves = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum"
    shared, columns = (counters(name, (n,), family) for name in ("wide-loads", "lane-counters"))
    assert shared[GLOBAL_LOADS] == columns[GLOBAL_LOADS] == n // 16 // 32
    assert atomics(shared, "shared") == atomics(columns, "shared") == n // 32
    assert columns[waves] == n // 32
    assert (shared[waves] > 3 * n // 32) == (family == "uniform")


def test_a_vector_addition_is_coalesced_whole_or_in_chunks():
    n = 2**14 + 5
    warps = n // 32 + 1
    for rung in ladder.rungs("vector-add"):
        counted = counters(rung.name, (n,))
        assert (counted[GLOBAL_LOADS], counted[GLOBAL_STORES]) == (2 * warps, warps)
        assert counted[GLOBAL_LOAD_SECTORS] == 2 * counted[GLOBAL_STORE_SECTORS] == 2 * -(-n // 8)


def test_128_bit_loads_are_a_quarter_of_the_requests_and_the_same_sectors():
    narrow, wide = (counters(rung, (2**14,)) for rung in ("warp-shuffle", "vectorized"))
    assert narrow[GLOBAL_LOADS] == 4 * wide[GLOBAL_LOADS] == 2**14 // 32
    assert narrow[GLOBAL_LOAD_SECTORS] == wide[GLOBAL_LOAD_SECTORS] == 2**14 // 8


@pytest.mark.parametrize("family", problems.find("histogram").families)
def test_a_histogram_per_block_leaves_256_additions_to_global_memory(family):
    n, per_block = 2**15, 8192
    plain = counters("histogram:global-atomics", (n,), family)
    assert atomics(plain, "global") == n // 32
    private = counters("shared-atomics", (n,), family)
    assert atomics(private, "shared") == n // 32
    assert atomics(private, "global") == n // per_block * 256 // 32


@pytest.mark.slow
def test_a_rung_names_its_architecture_where_its_instructions_exist_on_no_other():
    """PTX ISA: wgmma and setmaxnreg require sm_90a, bulk copies sm_90 or later."""
    for rung in (rung for name in problems.NAMES for rung in ladder.rungs(name)):
        text = compile_rung(rung).ptx
        specific = re.search(r"\b(wgmma|setmaxnreg)\.", text)
        first = "sm_90" if re.search(r"\bcp\.async\.bulk\.", text) else None
        assert rung.arch == ("sm_90a" if specific else first), rung.name


def test_an_architecture_without_a_letter_is_the_first():
    rung = ladder.find("bulk-copies")
    assert [rung.lacks(arch) for arch in ("sm_90", "sm_90a", "sm_120")] == [None] * 3
    assert rung.lacks("sm_80") == "needs sm_90 or later"
    assert ladder.find("wgmma").lacks("sm_120") == "needs sm_90a"


@needs_gpu
@pytest.mark.parametrize("name", ["vectorized", "deterministic"])
def test_numbers_on_no_16_byte_boundary_take_the_scalar_path(name):
    device = opened("cuda")  # all of the emulator's buffers are aligned
    rung, n = ladder.find(name), 1003
    held, out = device.allocate(4 * (n + 3)), device.allocate(4)
    for shift in range(4):
        held.write(np.ones(n, np.float32), 4 * shift)
        out.write(np.zeros(1, np.float32))
        grid, block, _ = rung.geometry(rung.config, {"n": n})
        args: list[Any] = [Span(held, 4 * shift, 4 * n), Span(out, 0, 4), n]
        device.launch(compile_rung(rung, device.arch), grid, block, args)
        assert out.read().view(np.float32) == n


@pytest.mark.parametrize(
    ("name", "field", "value", "rule"),
    [
        ("transpose:naive", "block_m", 64, "2048 threads per block"),
        ("transpose:shared", "stride", 63, "stride = 63 is less than tile = 64"),
        ("shared-padded", "rows", 7, "not a multiple of rows = 7"),
        ("shared-padded", "tile", 128, "stride = 65 is less than tile = 128"),
        ("ilp", "loads", 5, "not a multiple of rows × loads = 20"),
        ("shared-serial", "threads", 100, "a power of two from 32 to 1024"),
        ("tree-strided", "order", "random", "must be one of interleaved"),
        ("vectorized", "blocks", 0, "must be positive"),
        ("shared-atomics", "run", 0, "must be positive"),
        ("lane-counters", "loads", 17, "must be 1 to 16"),
        ("loads-in-flight", "loads", 33, "must be 1 to 32"),
        ("register-tiles", "block_m", 48, "a power of two from 32 to 256"),
        ("register-tiles", "threads", 512, "not a multiple of 512 threads"),
        ("bulk-copies", "stages", 20, "bytes, at most"),
    ],
)
def test_illegal_configurations_are_refused(name, field, value, rule):
    with pytest.raises(InputError, match=rule):
        replace(ladder.find(name).config, **{field: value})


@pytest.mark.parametrize(
    ("problem", "undocumented"), [("softmax", True), ("attention", True), ("layernorm", False)]
)
def test_bits_are_compared_unless_an_instruction_is_approximate(problem, undocumented):
    found = {has_undocumented_bits(compile_rung(rung).ptx) for rung in ladder.rungs(problem)}
    assert found == {undocumented}
