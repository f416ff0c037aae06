"""The command line: clean stdout, one clear message per mistake, exit codes."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmlab.cli.options import rungs_of
from gemmlab.errors import DeviceError, MissingDependencyError


def recorded(text):
    """Return the records in the output of a climb."""
    return json.loads(text)["records"]


@pytest.fixture
def every_seventh(monkeypatch):
    """Ladders with every seventh rung: tests of the judge and of the kernels climb the others."""
    monkeypatch.setattr("gemmlab.cli.climb.rungs_of", lambda *chosen: rungs_of(*chosen)[::7])


@pytest.mark.slow
@pytest.mark.usefixtures("every_seventh")
def test_climb_json_is_a_run_with_its_records_and_nothing_else(gemmlab):
    code, out, err = gemmlab("climb", "--shape", "33,20,17", "--device", "emulated", "--json")
    run, records = json.loads(out).values()
    assert code == 0, err
    assert run["device"] == "emulated" and run["versions"]["nvidia-cutlass-dsl"]
    names = [record["rung"] for record in records]
    assert names[:2] == ["naive", "tile-2d-8x8"] and names[-1] == "bf16x6"
    for record in records:
        assert record["verdict"] == "pass"
        assert record["shape"] == {"m": 33, "n": 20, "k": 17}
        assert 0 <= record["max_error_u"] <= record["bound_u"]
        assert record["launch"].keys() == {"grid", "block", "dynamic_smem_bytes"}
        assert record["resources"].keys() == {"registers", "spill_bytes", "static_smem_bytes"}
        assert record["counters"]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] > 0
        assert record["time_s"] is None
    for number, name in enumerate(names, 1):
        assert f"{number}/{len(names)} {name}: pass" in err


def test_climb_prints_a_table_of_at_most_120_columns_and_a_sentence_per_step(gemmlab):
    code, out, _ = gemmlab(
        "climb", "--size", "64", "--rungs", "naive,shared", "--device", "emulated"
    )
    assert code == 0
    assert max(map(len, out.splitlines()[2:-2])) <= 120
    told = " ".join(out.split())
    assert "naive → shared (tiles of A and B in shared memory): " in told
    assert "shared wavefronts appear" in told
    assert "\x1b" not in out


def test_a_narrow_table_says_what_it_leaves_out(gemmlab, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = gemmlab("climb", "--size", "16", "--rungs", "naive,shared", "--device", "emulated")
    assert "pass" in out and "…" not in out and "omitted at this width:" in out
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.parametrize("columns", ["0", "1", "39"])
def test_the_narrowest_terminal_gets_40_columns(gemmlab, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for args in (["explain", "naive", "--size", "8"], ["climb", "--size", "8", "--rungs", "naive"]):
        code, out, err = gemmlab(*args)
        assert code == 0, err
        assert "naive" in out and max(map(len, out.splitlines())) <= 40


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["climb", "--size", "2147483647"], "takes at least 110,680,464,339.2 GB of memory, but"),
        (["climb", "sum", "--size", "274877906944"], "takes at least 2,199.0 GB of memory, but"),
        (["new", "gemm", "-o", "/nowhere/k.cu"], "/nowhere/k.cu cannot be written: No such file"),
        (["export", "gemm", "-o", "/dev/null"], "/dev/null is not a folder"),
        (
            ["export", "gemm", "-o", "/dev/null/x"],
            "folder /dev/null/x cannot be created: Not a direc",
        ),
        (
            ["explain", "naive", "--size", "8", "--svg", "/dev/full"],
            "/dev/full cannot be written",
        ),
        (["climb", "--layout", ""], "layout is '', must be one of row, course"),
        (["climb", "--family", ""], "no input family ''"),
    ],
)
def test_what_cannot_be_is_one_sentence(gemmlab, args, told):
    code, out, err = gemmlab(*args)
    assert (code, out) == (2, "") and told in err and err.count("\n") == 1


def test_version(gemmlab):
    import gemmlab as package

    code, out, _ = gemmlab("--version")
    assert (code, out) == (0, f"gemmlab {package.__version__}\n")
    assert package.__version__ == importlib.metadata.version("gemmlab")


def test_a_rung_named_twice_is_climbed_once(gemmlab):
    code, out, _ = gemmlab("climb", "--size", "8", "--rungs", "naive,naive", "--json")
    assert code == 0 and len(recorded(out)) == 1


def test_output_follows_a_link_and_keeps_what_is_no_file(gemmlab, tmp_path):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    args = ("climb", "--size", "8", "--rungs", "naive", "--device", "emulated")
    assert gemmlab(*args, "-o", str(link))[0] == 0
    assert link.is_symlink() and recorded(target.read_text())[0]["rung"] == "naive"
    assert gemmlab(*args, "-o", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


def test_climb_writes_the_file_whole(gemmlab, tmp_path):
    path = tmp_path / "records.json"
    code, out, _ = gemmlab(
        *("climb", "--size", "16", "--rungs", "naive-tnn", "--device", "emulated", "--json"),
        *("-o", str(path), "--family", "special", "--seed", "3"),
    )
    assert code == 0
    assert path.read_text() == out
    assert [p.name for p in tmp_path.iterdir()] == ["records.json"]
    [record] = recorded(out)
    assert (record["layout"], record["rung"]) == ("course", "naive-tnn")
    assert (record["family"], record["seed"]) == ("special", 3)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--size", "0"], "m = 0 is not between 1"),
        (["--size", "-4"], "m = -4"),
        (["--size", "ten"], "--size': Input should be a valid integer"),
        (["--shape", "3,4"], "has 2 sizes; it must be M,N,K"),
        (["--shape", "3,4,x"], "not of the form M,N,K"),
        (["--shape", "3,4,0"], "k = 0"),
        (["--shape", "3,4,5", "--size", "3"], "not both"),
        (["--family", "gaussian"], "cancellation"),
        (["--rungs", "naive,nave"], "naive"),
        (
            ["--rungs", "naive,naive-tnn"],
            "naive, naive-tnn: different layouts; choose one with --layout",
        ),
        (["gemm", "--rungs", "transpose:naive"], "is a rung of transpose, not of gemm"),
        (["--rungs", "naive,sum:naive"], "no rung 'naive'; rungs: global-atomics"),
        (["--rungs", "ilp", "--layout", "course"], "has layout 'row' only"),
        (["--rungs", "naive,ilp", "--shape", "3,4,5"], "has 3 sizes; it must be M,N"),
        (["--rungs", ""], "naive"),
        (["--layout", "diagonal"], "course"),
        (["--device", "tpu"], "auto, emulated, cuda"),
        (["--arch", "sm_12"], "sm_90"),
        (["--seed", "-1"], "seed -1"),
        (["-o", "/nowhere/at/all.json"], "/nowhere/at"),
        (["-o", "/"], "this is a folder"),
        (["conv"], "gemm"),
        (["--sise", "3"], "--sise"),
    ],
)
def test_mistakes_get_one_message_that_says_what_is_allowed(gemmlab, args, told):
    if "--device" not in args:
        args = [*args, "--device", "emulated"]
    code, out, err = gemmlab("climb", *args)
    assert code == 2
    assert out == ""
    assert told in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("args", "shown", "hidden"),
    [
        (["transpose", "--shape", "70,33"], "transpose 70×33", "FLOP/"),
        (["sum", "--size", "3000"], "branches", "error exact"),
        (["histogram", "--family", "text"], "text inputs", "FLOP/"),
        (["sum", "--size", "0"], "sum 0", "not run"),
        (["vector-add", "--size", "600"], "2 × copy in (4.8kB), 1 × kernel", "time"),
        (["vector-add", "--size", "0"], "vector-add 0", "copy in ("),
    ],
)
@pytest.mark.slow
def test_other_ladders_show_what_is_something(gemmlab, args, shown, hidden):
    code, out, err = gemmlab("climb", *args, "--device", "emulated")
    assert code == 0, err
    assert shown in out and hidden not in out
    assert max(map(len, out.split("→")[0].splitlines())) <= 120


@pytest.mark.slow
@pytest.mark.usefixtures("every_seventh")
def test_all_climbs_every_ladder(gemmlab, monkeypatch):
    from gemmlab import problems

    for name in problems.NAMES:
        monkeypatch.setattr(problems.find(name), "default_size", 17)
    code, out, err = gemmlab("climb", "--all", "--device", "emulated", "--json")
    assert code == 0, err
    assert tuple(dict.fromkeys(record["problem"] for record in recorded(out))) == problems.NAMES
    code, out, _ = gemmlab("climb", "--all", "--device", "emulated")
    assert [name for name in problems.NAMES if f"{name} 17" not in out] == []


@pytest.mark.parametrize(
    ("args", "climbed"),
    [
        (["--rungs", "transpose:naive"], ["transpose naive"]),
        (["--rungs", "ilp, shared-padded"], ["transpose ilp", "transpose shared-padded"]),
        (
            ["transpose", "--rungs", "transpose:naive,shared"],
            ["transpose naive", "transpose shared"],
        ),
        (["--rungs", "shared"], ["gemm shared"]),
        (
            ["--rungs", "warp-shuffle,naive,histogram:global-atomics,gemm:shared,naive"],
            ["sum warp-shuffle", "gemm naive", "gemm shared", "histogram global-atomics"],
        ),
    ],
)
def test_rungs_are_named_as_list_names_them(gemmlab, args, climbed):
    code, out, err = gemmlab("climb", *args, "--size", "9", "--device", "emulated", "--json")
    assert code == 0, err
    found = [f"{record['problem']} {record['rung']}" for record in recorded(out)]
    assert found == climbed


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--all", "gemm"], "--all cannot be combined"),
        (["--all", "--size", "3"], "--all cannot be combined"),
        (["transpose", "--shape", "1,2,3"], "it must be M,N"),
        (["transpose", "--layout", "course"], "has layout 'row' only"),
        (["transpose", "--rungs", "float4"], "rungs: naive, shared, shared-padded, ilp"),
        (["sum", "--size", "-1"], "n = -1 is not between 0"),
        (["sum", "--family", "text"], "cancellation"),
        (["histogram", "--family", "normal"], "uniform, single, text"),
        (["vector-add", "--rungs", "manage"], "Did you mean 'managed'"),
    ],
)
def test_mistakes_with_other_ladders(gemmlab, args, told):
    code, out, err = gemmlab("climb", *args, "--device", "emulated")
    assert (code, out) == (2, "")
    assert told in err and "Traceback" not in err


@pytest.mark.parametrize("error", [DeviceError("no driver"), MissingDependencyError("cuda-core")])
def test_a_device_that_is_not_there_is_one_line(gemmlab, monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr("gemmlab.devices.open_device", refuse)
    code, out, err = gemmlab("climb", "--device", "cuda")
    assert (code, out, err) == (error.exit_code, "", f"gemmlab: {error}\n")


def test_a_failed_verdict_ends_with_1_and_says_why(gemmlab, monkeypatch):
    monkeypatch.setattr("gemmlab.problems.gemm.Gemm.bound_u", lambda self, shape: 1e-9)
    code, out, _ = gemmlab("climb", "--size", "32", "--rungs", "naive", "--device", "emulated")
    assert code == 1
    assert "wrong answer" in out and "worst at" in out


def test_a_rung_that_cannot_run_does_not_stop_the_climb(gemmlab, monkeypatch):
    from gemmlab.compile.cute import compile_rung
    from gemmlab.errors import CompileError
    from gemmlab.lab import climb

    def refuse(rung, arch):
        if rung.name == "naive":
            raise CompileError("no", "log line")
        return compile_rung(rung, arch)

    monkeypatch.setattr(climb, "compile_rung", refuse)
    args = ("climb", "--size", "8", "--rungs", "naive,shared", "--device", "emulated", "--json")
    code, out, _ = gemmlab(*args)
    assert code == 1
    first, second = recorded(out)
    assert (first["verdict"], second["verdict"]) == ("not run", "pass")
    assert "log line" in first["message"]


def test_a_rung_that_needs_another_architecture_is_skipped(gemmlab):
    args = ("--rungs", "naive,fp16x3", "--size", "16", "--arch", "sm_80", "--device", "emulated")
    code, out, _ = gemmlab("climb", *args, "--json")
    first, second = recorded(out)
    assert code == 0 and (first["verdict"], json.loads(out)["run"]["arch"]) == ("pass", "sm_80")
    assert (second["verdict"], second["message"]) == ("skipped", "needs sm_90a")
    assert "fp16x3: skipped: needs sm_90a" in gemmlab("climb", *args)[1]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["show", "fp16x3", "--ptx", "--arch", "sm_120a"], "it cannot be compiled for sm_120a"),
        (["show", "fp16x3", "--resources", "--arch", "sm_90"], "it cannot be compiled for sm_90"),
        (["explain", "bf16x6", "--gpu", "A100"], "A100 80GB has sm_80"),
    ],
)
def test_what_needs_another_architecture_is_one_sentence(gemmlab, args, told):
    code, out, err = gemmlab(*args)
    assert (code, out, err) == (2, "", f"gemmlab: {args[1]} needs sm_90a; {told}\n")


def test_env_tells_what_is_missing_and_what_brings_it(gemmlab):
    code, out, _ = gemmlab("env", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["device_auto"]
    packages = {package["name"]: package for package in found["packages"]}
    assert packages["numpy"]["version"]
    code, out, _ = gemmlab("env")
    assert code == 0 and "nvidia-cutlass-dsl" in out


def test_list_names_every_rung(gemmlab):
    code, out, _ = gemmlab("list")
    assert code == 0
    assert [name for name in ("naive", "tile-2d-8x8", "float4") if name not in out] == []
    code, out, _ = gemmlab("list", "--json")
    assert {"problem", "name", "change"} <= json.loads(out)[0].keys()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ((), "one element of C"),
        (("--source",), "@cute.kernel"),
        (("--ptx",), ".visible .entry"),
        (("--sass",), "FFMA"),
        (("--resources",), "per thread"),
        (("--ptx", "--arch", "sm_80"), ".target sm_80"),
    ],
)
def test_show(gemmlab, option, told):
    code, out, err = gemmlab("show", "naive", *option)
    assert code == 0, err
    assert told in out


def test_show_source_is_of_the_flow_and_of_the_kernel(gemmlab):
    _, out, _ = gemmlab("show", "async-stream", "--source")
    assert out.index("def flow(") < out.index("@cute.kernel")


@pytest.mark.parametrize(
    "args",
    [
        ["nave"],
        ["naive", "--ptx", "--sass"],
        ["naive", "--arch", "x", "--ptx"],
        ["naive", "--arch", "sm_80"],
        ["naive", "--source", "--arch", "sm_80"],
    ],
)
def test_show_refuses(gemmlab, args):
    code, out, err = gemmlab("show", *args)
    assert code == 2 and out == "" and err.count("\n") == 1


def test_module_and_help():
    command = [sys.executable, "-m", "gemmlab", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "climb" in done.stdout and not done.stderr


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("gemmlab explain tile-2d-8", {"tile-2d-8x8", "tile-2d-8x8-strided"}),
        ("gemmlab show transpose:sha", {"transpose:shared"}),
        ("gemmlab climb hist", {"histogram"}),
        ("gemmlab new soft", {"softmax"}),
        ("gemmlab explain naive --gpu A10", {"A10080GB", "A10040GB"}),
        ("gemmlab emulate float4 --gpu H2", {"H200"}),
        ("gemmlab bench --problem att", {"attention"}),
        ("gemmlab judge --problem soft", {"softmax"}),
        ("gemmlab climb --rungs shared,warp-t", {"shared,warp-tile"}),
        ("gemmlab compare shared flo", {"float4", "float4-64"}),
    ],
)
def test_the_shell_completes_rungs_problems_and_gpus(gemmlab, monkeypatch, command, found):
    monkeypatch.setenv("_GEMMLAB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", command)
    monkeypatch.setenv("COMP_CWORD", str(len(command.split()) - 1))
    _, out, _ = gemmlab()
    assert found <= set(out.split()) and "naive" not in out.split()


@pytest.mark.slow
def test_checks_choose_a_small_size_and_say_so(gemmlab, tmp_path):
    from gemmlab.lab.submission import start

    path = tmp_path / "kernel.cu"
    path.write_text(start.text("gemm", "cu"))
    _, out, _ = gemmlab("emulate", str(path), "--check", "all", "k=16")
    assert "Checked at m=256 n=256 k=16" in out and "no findings" in out
    path.write_text(start.text("gemm", "cu").replace("//! gemmlab", "//! gemmlab equal=m,n,k", 1))
    _, out, _ = gemmlab("emulate", str(path), "--check", "races")
    assert "Checked at m=256 n=256 k=256" in out
