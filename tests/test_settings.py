"""--set: a rung with another configuration; and the configurations that a rung names for tuning."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from configurations import OWN, quickest

from gemmlab import load, problems
from gemmlab.compile.cute import compile_rung
from gemmlab.devices import open_device
from gemmlab.errors import GemmlabError, InputError, UnknownNameError
from gemmlab.kernels import ladder
from gemmlab.kernels.settings import candidates, configured, read, settable
from gemmlab.lab import ahead as ahead_of
from gemmlab.lab import judge
from gemmlab.lab.bench.protocol import Protocol
from gemmlab.lab.bench.session import BenchPlan

RUNGS = [rung for name in problems.NAMES for rung in ladder.rungs(name)]


def test_words_of_set():
    assert read(["block_m=64 block_n=32", "stages=2"]) == {
        "block_m": "64",
        "block_n": "32",
        "stages": "2",
    }
    for words, message in (
        (["block_m"], "'block_m' is not of the form name=value"),
        (["block_m="], "is not of the form"),
        (["a=1", "a=2"], "--set a is given twice"),
    ):
        with pytest.raises(InputError, match=message):
            read(words)


def test_a_value_gets_the_type_of_its_field():
    rung = configured(ladder.find("copy-warps"), {"registers": "96,192", "stages": "4"})
    assert (rung.config.registers, rung.config.stages) == ((96, 192), 4)
    assert configured(ladder.find("padded"), {"arrangement": "plain"}).config.arrangement == "plain"
    assert ladder.label(rung) == "copy-warps registers=96,192 stages=4"
    assert configured(ladder.find("tile-2d-8x8"), {"strided": "true"}).config.strided is True
    assert (
        configured(ladder.find("tile-2d-8x8-strided"), {"strided": "False"}).config.strided is False
    )
    assert configured(ladder.find("naive"), {"block_m": "32"}) == ladder.find("naive")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("float4", {"block_q": "1"}, "float4 has no setting 'block_q'; it has block_m=128.*block_"),
        ("naive", {"layout": "course"}, "naive has no setting 'layout'"),
        ("fp16x3", {"a_major": "mn"}, "has no setting 'a_major'"),
        ("float4", {"block_m": "x"}, "block_m is 'x', must be an integer such as 128"),
        ("tile-2d-8x8", {"strided": "2"}, "strided is '2', must be true or false"),
        ("copy-warps", {"registers": "104"}, "must be 2 integers such as 104,200"),
        ("float4", {"block_m": "0"}, "block_m = 0, must be 1 to"),
        ("naive", {"block_m": "64"}, "naive with block_m=64: 2048 threads per block"),
        ("float4", {"block_k": "16"}, "float4 with block_k=16: tile block_m"),
        ("async-copy", {"min_blocks": "9"}, "min_blocks × warps per block is 72"),
        ("copy-warps", {"depth": "3"}, "block_k = 32 is not a multiple of depth = 3"),
        ("copy-warps", {"registers": "104,208"}, "the threads take 66560 registers, of 64512"),
        ("copy-warps", {"registers": "4,200"}, "multiples of 8 from 24 to 240"),
        ("copy-warps", {"copiers": "384"}, "four per thread that copies"),
        ("copy-warps", {"stages": "40"}, "40 stages take"),
        ("warp-tile", {"thread_m": "2", "warp_m": "8"}, "thread_m = 2, must be a multiple of 4"),
        ("fp16x3", {"cluster": "4"}, "cluster = 4, must be 1 or 2"),
        ("async-stream", {"streams": "1000"}, "streams = 1000, must be 1 to 64"),
    ],
)
def test_a_bad_value_is_refused_with_the_rule(name, settings, message):
    with pytest.raises((InputError, UnknownNameError), match=message):
        configured(ladder.find(name), settings)


@pytest.mark.parametrize("rung", RUNGS, ids=ladder.qualified)
def test_no_value_breaks_a_rung_without_a_message(rung):
    tried = "0", "-1", "3", "96", "1000000", str(2**31), "x", "1.5", "0,0", "4096,4096"
    for name in settable(rung):
        for value in tried:
            with suppress(GemmlabError):
                made = configured(rung, {name: value})
                assert str(getattr(made.config, name)).strip("()").replace(", ", ",") == value


@pytest.mark.parametrize("rung", RUNGS, ids=ladder.qualified)
def test_every_rung_names_configurations_to_try(rung):
    found = candidates(rung)
    assert found[0] == rung and not found[0].settings
    assert len(found) > 1
    configs = [made.config for made in found]
    assert all(configs.count(config) == 1 for config in configs)
    changes = [len(made.settings) for made in found]
    assert changes == sorted(changes) and 0 not in changes[1:]
    for made in found:
        assert configured(rung, made.settings).config == made.config
    for name, values in rung.choices.items():
        assert getattr(rung.config, name) in values


ONE_LAUNCH = list(
    {r.kernel: r for r in RUNGS if r.launches is None and r.flow is None}.values()  # per kernel
)


@pytest.mark.parametrize("rung", ONE_LAUNCH, ids=ladder.qualified)
@pytest.mark.slow
def test_another_configuration_is_right(rung):
    problem = problems.find(rung.problem)
    device = open_device("emulated")
    case = problem.case(
        dict(zip(problem.axes, problem.judged.small[-1], strict=True)),
        rung.layout,
        problem.families[0],
        seed=1,
    )
    made = replace(quickest(rung), rewrite=None)  # no part of what the emulator runs
    workspace = made.workspace and made.workspace(made.config, case.shape)
    geometry = made.geometry(made.config, case.shape)
    found = judge.examine(device, compile_rung(made), geometry, problem, case, workspace)
    assert found.verdict.passed, (ladder.label(made), found.verdict.message)


def test_load_takes_settings():
    artifact = load("naive", settings={"block_m": 8})
    assert artifact.block == (32, 8, 1)
    assert artifact.origin == "naive block_m=8"
    assert load("naive").block == (32, 32, 1)
    with pytest.raises(InputError, match="only a rung has settings such as block_m; text has none"):
        load("__global__ void f() {}", settings={"block_m": 8})


def test_climb_runs_another_configuration(gemmlab):
    words = [
        "climb",
        "--rungs",
        "naive",
        "--set",
        "block_m=8",
        "--size",
        "40",
        "--device",
        "emulated",
        "--json",
    ]
    code, out, err = gemmlab(*words)
    [record] = json.loads(out)["records"]
    assert code == 0, err
    assert (record["rung"], record["verdict"]) == ("naive block_m=8", "pass")
    assert record["launch"]["block"] == [32, 8, 1] and record["launch"]["grid"] == [2, 5, 1]


def test_explain_and_show_take_another_configuration(gemmlab):
    code, out, _ = gemmlab(*["explain", "naive", "--set", "block_m=8", "--size", "32", "--json"])
    told = json.loads(out)
    assert code == 0 and told["geometry"]["block"] == [32, 8, 1]
    assert told["rung"] == "naive block_m=8"
    code, out, _ = gemmlab(
        *["show", "naive", "--resources", "--set", "block_m=8", "--set", "block_n=64"]
    )
    assert code == 0 and "64×8×1 = 512 threads" in out
    code, out, _ = gemmlab("show", "naive", "--set", "block_m=8")
    assert code == 0 and "block_m=8" in out.splitlines()[-1]


@pytest.mark.parametrize(
    "command",
    [
        "climb --rungs naive",
        *(f"{name} naive" for name in ["explain", "show", "bench", "emulate", "judge"]),
    ],
)
def test_every_command_names_the_rule_that_a_value_breaks(gemmlab, command):
    code, out, err = gemmlab(*command.split(), "--set", "block_m=64")
    assert (code, out) == (2, "")
    told = "naive with block_m=64: 2048 threads per block, must be 1 to 1024"
    assert err.splitlines() == [f"gemmlab: {told}"]


@pytest.mark.slow
def test_emulate_runs_a_rung_of_any_ladder(gemmlab):
    words = ("--set", "block_m=8", "--check", "races", "--json")
    code, out, err = gemmlab("emulate", "naive", "m=20", "n=40", "k=9", *words)
    told = json.loads(out)
    assert code == 0, err
    assert (told["block"], told["grid"]) == ([32, 8, 1], [2, 3, 1])
    assert (told["verdict"], told["findings"]) == ("pass", [])
    settings = " ".join(f"{name}={value}" for name, value in OWN["split-k"].items())
    code, out, _ = gemmlab("emulate", "split-k", "m=8", "n=8", "k=32", "--set", settings)
    assert code == 0 and "grid 1×1×2" in out and "pass: largest error" in out


@pytest.mark.slow
@pytest.mark.usefixtures("judged_here")
def test_judge_takes_a_rung_with_its_own_launch_at_every_shape(gemmlab):
    """The grid and the workspace of split-k depend on all three sizes and on slice_k."""
    settings = " ".join(f"{name}={value}" for name, value in OWN["split-k"].items())
    code, out, err = gemmlab("judge", "split-k", "--set", settings, "--emulated", "--json")
    told = json.loads(out)
    assert (code, told["verdict"]) == (0, "pass"), err
    assert told["file"] == f"split-k {settings}.ptx"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("emulate fp16x3", "fp16x3 takes several launches"),
        ("judge fp16x3 --emulated", "fp16x3 takes several launches"),
        ("judge operand-reuse --emulated", "operand-reuse changes its machine code"),
        ("emulate naive grid=4", "grid=… is for kernel files; naive determines it"),
        ("judge naive layout=course --emulated", "layout=… is for kernel files"),
        ("emulate k.cu --set block_m=8", "--set is for rungs; k.cu is a file"),
        ("judge k.cu --layout course", "--layout is for rungs; k.cu is a file"),
        ("emulate nothing", "no rung 'nothing'; rungs: naive"),
        ("emulate naive q=4", "the directive sets q, but does not use it"),
    ],
)
def test_what_does_not_apply_to_a_rung_or_a_file_is_refused(gemmlab, words, message):
    code, out, err = gemmlab(*words.split())
    assert (code, out) == (2, "") and message in err


@pytest.mark.slow
def test_a_bench_names_the_settings_in_its_command():
    problem = problems.find("gemm")
    names, changes = ("naive", "uncoalesced"), {"block_m": "16", "block_n": "16"}
    rungs = [configured(ladder.find(name), changes) for name in names]
    plan = BenchPlan(problem, rungs, [dict.fromkeys("mnk", 64)], "normal", 0, ())
    job, _ = plan.job(plan.shapes[0], Protocol(), "sm_90a")
    assert "--set block_m=16 --set block_n=16" in job.command
    assert [kernel.name for kernel in job.kernels] == [ladder.label(rung) for rung in rungs]


def test_other_configurations_are_compiled_ahead(monkeypatch):
    asked = []
    monkeypatch.setattr("gemmlab.lab.ahead.Second", lambda _, request: asked.append(request))
    monkeypatch.setattr("gemmlab.lab.ahead.is_cached", lambda *_: False)
    monkeypatch.setattr("gemmlab.lab.second.os.sched_getaffinity", lambda _: {0, 1})
    rungs = candidates(ladder.find("naive"))[:3]
    with ahead_of.Ahead(rungs, {"m": 8, "n": 8, "k": 8}, "sm_90a") as ahead:
        ahead.wait(rungs[0])
    *_, names = asked[0]
    assert [dict(settings) for *_, settings in names] == [dict(rung.settings) for rung in rungs[1:]]
