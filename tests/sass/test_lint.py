"""Control bits, the hot loop, and what a loop costs to issue."""

import json
from pathlib import Path

import pytest

from gemmlab import load
from gemmlab.cli.app import main
from gemmlab.cubin import code, lint, loops, tools
from gemmlab.cubin.control import decode
from gemmlab.lab import views

RECORDS = Path(__file__).parents[2] / "benchmarks/h200/bench/gemm/gemm/4096x4096x4096-row-normal"


def bits(stall=1, yields=False, write=7, read=7, waits=0, reuse=0):
    """Return the control bits as they are in an instruction."""
    fields = (stall, 0), (not yields, 4), (write, 5), (read, 8), (waits, 11), (reuse, 17)
    return sum(value << place for value, place in fields) << 64 + 41


def listing(*rows):
    """Return nvdisasm-like text with words: rows are text, or pairs of text and control bits."""
    lines, address = [], 0
    for row in rows:
        text, word = row if isinstance(row, tuple) else (row, bits())
        if text.endswith(":"):
            lines.append(text)
            continue
        word |= 0x918
        lines.append(f"        /*{address:04x}*/    {text} ;    /* 0x{word & 2**64 - 1:016x} */")
        lines.append(f"                                         /* 0x{word >> 64:016x} */")
        address += 16
    return code.read("\n".join(lines))


def lint_of(*rows):
    return lint.lint(listing(*rows, "EXIT").instructions[:-1])


def test_control_bits():
    control = decode(bits(stall=5, yields=True, write=2, read=0, waits=0b100001, reuse=0b011))
    assert (control.stall, control.yields) == (5, True)
    assert (control.write_barrier, control.read_barrier) == (2, 0)
    assert (control.waits, control.reuse) == ((0, 5), (0, 1))
    assert decode(bits()).write_barrier is decode(bits()).read_barrier is None


@pytest.fixture(scope="module")
def outer_product():
    return load(
        """__global__ void f(const float *a, const float *b, float *c, int n) {
            __shared__ float s[64];
            float sum[4][4] = {};
            s[threadIdx.x] = a[threadIdx.x];
            __syncthreads();
            for (int k = 0; k < n; ++k)
                for (int i = 0; i < 4; ++i)
                    for (int j = 0; j < 4; ++j)
                        sum[i][j] += s[(k + i) & 63] * s[(k + 8 * j) & 63];
            for (int i = 0; i < 16; ++i) c[16 * threadIdx.x + i] = sum[i / 4][i % 4];
        }"""
    )


def code_of(artifact):
    return code.read(tools.sass(artifact.cubin, artifact.entry, words=True))


def test_reuse_bits_are_those_that_the_disassembler_prints(outer_product):
    flagged = 0
    for one in code_of(outer_product).instructions:
        if one.root == "FFMA":
            sources = one.operands.split(",")[1:]
            printed = tuple(i for i, text in enumerate(sources) if ".reuse" in text)
            assert decode(one.word).reuse == printed, one
            flagged += bool(printed)
    assert flagged


def test_what_waits_for_a_load_names_the_barrier_that_the_load_sets(outer_product):
    found = code_of(outer_product).instructions
    loads = [one for one in found if one.root in ("LDS", "LDG")]
    assert loads
    for one in loads:
        barrier = decode(one.word).write_barrier
        assert barrier is not None
        after = found[found.index(one) + 1 :]
        assert any(barrier in decode(other.word).waits for other in after)


def test_the_hot_loop_is_the_innermost_with_the_most_ffmas_without_its_waits():
    found = listing(
        "MOV R9, RZ",
        ".L_x_1:",
        "FFMA R9, R9, R9, R9",
        ".L_x_2:",
        "FFMA R0, R1, R2, R0",
        ".L_x_3:",
        "SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R3",
        "@!P1 BRA `(.L_x_3)",
        "FFMA R4, R1, R3, R4",
        "@P0 BRA `(.L_x_2)",
        ".L_x_4:",
        "FFMA R5, R1, R3, R5",
        "@P2 BRA `(.L_x_4)",
        "@P3 BRA `(.L_x_1)",
        "EXIT",
    )
    loop = loops.hot_loop(found)
    assert [one.opcode for one in loop] == ["FFMA", "FFMA", "BRA"]
    assert loop[-1].target == ".L_x_2"


def test_the_hot_loop_multiplies_on_tensor_cores_and_does_not_poll():
    """A kernel that fills a ring of buffers has loops that poll; an epilogue may have FFMAs."""
    poll = ("SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R3", "@!P1 BRA `(.L_x_{})")
    found = listing(
        ".L_x_1:",
        *(text.format(1) for text in poll),
        ".L_x_2:",
        ".L_x_3:",
        *(text.format(3) for text in poll),
        "HGMMA.64x192x16.F32 R24, gdesc[UR8], R24",
        "@P0 BRA `(.L_x_2)",
        ".L_x_4:",
        "FFMA R5, R1, R3, R5",
        "FFMA R6, R1, R3, R6",
        "@P2 BRA `(.L_x_4)",
        "EXIT",
    )
    assert [one.root for one in loops.hot_loop(found)] == ["HGMMA", "BRA"]


def test_without_a_loop_the_whole_kernel_is_hot():
    assert len(loops.hot_loop(listing("FFMA R0, R1, R2, R0", "EXIT"))) == 2


def test_the_cache_keeps_a_register_per_slot_and_bank():
    found = lint_of(
        ("FFMA R20, R10.reuse, R34.reuse, R20", bits(reuse=3)),
        ("FFMA R21, R10, R35.reuse, R21", bits(reuse=2)),
        ("FFMA R22, R11.reuse, R35, R22", bits(reuse=1)),
        ("FFMA R23, R11, R34, R23", bits()),
    )
    # R34 is found although R35, of the other bank, was read in its slot in between
    assert (found.fresh, found.cycles) == (1, 5)


def test_a_register_that_is_written_leaves_the_cache():
    held = ("FFMA R20, R10.reuse, R34, R20", bits(reuse=1))
    assert lint_of(held, "FFMA R21, R10, R36, R21").fresh == 1
    assert lint_of(held, "MOV R10, R3", "FFMA R21, R10, R36, R21").fresh == 2


def test_missed_reuse():
    found = lint_of("FFMA R20, R10, R34, R20", "FFMA R21, R10, R36, R21", "FFMA R2, R3, R4, R2")
    assert (found.missed, found.fresh, found.cycles) == (1, 3, 7)  # even registers: 7 reads


def ffmas(*registers):
    return [f"FFMA R{d}, R{a}, R{b}, R{c}" for d, a, b, c in registers]


EVEN2, ODD2 = (20, 2, 2, 4), (21, 3, 3, 5)
MEASURED = {  # cycles per FFMA of long sequences, two warps per partition of an H200
    "a register of each bank": ([(20, 2, 2, 5), (22, 6, 6, 9)], 1.007),
    "two of one bank, then two of the other": ([EVEN2, ODD2], 1.007),
    "two of one bank": ([EVEN2, (22, 6, 6, 8)], 2.004),
    "twice two of one bank": ([EVEN2, (22, 6, 6, 8), ODD2, (23, 7, 7, 9)], 1.506),
    "three": ([(20, 2, 4, 7), (22, 6, 8, 11)], 2.004),
    "three, the odd one in turn": ([(20, 2, 4, 7), (21, 3, 5, 6)], 1.504),
    "three of one bank": ([(20, 2, 4, 6), (22, 8, 10, 12)], 3.002),
}


@pytest.mark.parametrize("name", MEASURED)
def test_cycles_are_those_of_the_hardware(name):
    registers, cycles = MEASURED[name]
    found = lint_of(*ffmas(*registers * 8))
    assert found.cycles / found.ffmas == pytest.approx(cycles, rel=0.03)


def test_results_that_follow_each_other_into_a_bank():
    assert lint_of(*ffmas((20, 2, 3, 4), (22, 2, 3, 4), (23, 2, 3, 4), (20, 2, 3, 4))).alike == 1


def test_stalls_waits_and_the_distance_of_shared_loads():
    found = lint_of(
        ("LDS.128 R8, [R2]", bits(stall=2, write=0)),
        ("FFMA R20, RZ, R34, R20", bits(stall=4)),
        ("FFMA R21, RZ, R11, R21", bits(waits=1, yields=True)),
    )
    assert found.distances == (6,)
    assert (found.alone, found.stalled, found.waits, found.yields) == (7, 4, 1, 1)
    assert dict(found.others) == {"LDS.128": 1}


def test_an_empty_loop_is_refused():
    with pytest.raises(ValueError, match="must have instructions"):
        lint.lint([])


RUNGS = "naive tile-2d-8x8 float4 float4-transposed-a warp-tile double-buffer async-copy split-k"


@pytest.mark.slow
@pytest.mark.parametrize("rung", RUNGS.split())
def test_no_rung_is_measured_above_its_bound(rung):
    """The rule gives a bound: the H200's measured rates stay below it."""
    record = json.loads((RECORDS / f"{rung}.json").read_text())
    measured = record["flops"] / record["gpu_median_s"] / 1e12 / 66.9
    found = lint.lint(loops.hot_loop(code_of(load(rung))))
    assert measured <= found.register_bound <= found.issue_bound <= 1


def shown(*options):
    with pytest.raises(SystemExit) as ended:
        main(["show", *options])
    return ended.value.code


@pytest.mark.slow
def test_show_lint_of_a_rung_and_of_a_file(capsys, tmp_path):
    file = tmp_path / "k.cu"
    file.write_text('extern "C" __global__ void f(float *x) { *x = *x * *x + 1.0f; }')
    for what, is_measured in (("float4", True), (str(file), False)):
        assert shown(what, "--sass", "--lint") == 0
        out = capsys.readouterr().out
        assert "issue bound" in out and "TFLOPS on H200" in out and "FFMA" in out
        assert is_measured == ("TFLOPS on NVIDIA H200 at 4096×4096×4096" in " ".join(out.split()))


@pytest.mark.slow
def test_show_lint_of_a_loop_without_ffmas_has_no_bound(capsys):
    assert shown("sum:vectorized", "--sass", "--lint") == 0
    out = capsys.readouterr().out
    assert "0 of them FFMA" in out and "one warp alone" in out
    assert "bound" not in out and "TFLOPS" not in out


@pytest.mark.parametrize(
    "options", [["--lint"], ["--sass", "--lint", "--arch", "sm_80"], ["--entry", "f"]]
)
def test_show_lint_refuses(capsys, options):
    assert shown("naive", *options) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_lint_names_what_a_cubin_lacks():
    from dataclasses import replace

    from gemmlab.errors import CompileError

    with pytest.raises(CompileError, match="no machine code"):
        views.machine_lint(replace(load("naive"), cubin=None))
