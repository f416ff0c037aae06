"""Checks find each planted bug at its line and report nothing for correct kernels."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from snippets import ptx

import gemmlab
from gemmlab import problems
from gemmlab.cli.app import main
from gemmlab.compile.cute import compile_rung
from gemmlab.emulator import run
from gemmlab.emulator.checks.findings import CHECKS
from gemmlab.errors import BudgetError, InputError, UnknownNameError
from gemmlab.kernels import ladder
from gemmlab.lab import kernel_file
from gemmlab.lab.directives import Directive

HERE = Path(__file__).parent
PLANTED, CORRECT = (sorted((HERE / name).glob("*.cu")) for name in ("planted", "correct"))
MARK = re.compile(r"// expect: (.*)")


def check(path):
    return kernel_file.run(path, Directive(), check="all", max_instructions=5000).run.findings


def line_of(site):
    return int(site.source.rsplit(":", 1)[1])


@pytest.mark.parametrize("path", PLANTED, ids=lambda path: path.stem)
@pytest.mark.slow
def test_planted_bugs_are_found(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    ((kind, line),) = [(m[1], k) for k, text in lines if (m := MARK.search(text))]
    found = check(path)
    (first,) = [f for f in found if f.kind == kind and line_of(f.site) == line][:1]
    # Further findings are consequences of the same bug.
    assert {f.kind for f in found} <= {kind, "order dependent", "error"}
    assert len(found) <= 3
    if kind in ("shared race", "global race", "missing wait"):
        assert first.other is not None
    if kind not in ("order dependent", "unwritten output"):
        assert first.block is not None and first.threads
    assert str(first).startswith(f"{kind}: ")


def test_there_are_enough_of_them():
    assert len(PLANTED) >= 25 and len(CORRECT) >= 10


@pytest.mark.parametrize("path", CORRECT, ids=lambda path: path.stem)
@pytest.mark.slow
def test_correct_kernels_are_clean(path):
    assert check(path) == ()


SHAPES = {"gemm": (33, 20, 19), "transpose": (40, 33), "sum": (1500,), "histogram": (1500,)}
SHAPES |= {
    **dict.fromkeys(("softmax", "layernorm", "scan", "conv2d"), (12, 70)),
    "attention": (70,),
}
RUNGS = [rung for p in SHAPES for rung in ladder.rungs(p) if rung.launches is None]


def emulate_rung(rung, family, check, **how):
    problem = problems.find(rung.problem)
    sizes = (33, 20, 130) if rung.name == "split-k" else SHAPES[rung.problem]
    shape = dict(zip(problem.axes, sizes, strict=True))
    case = problem.case(shape, rung.layout, family, 0)
    values = dict(case.buffers) | dict(case.scalars)
    output = values[case.output] = np.zeros(case.output_size, case.output_dtype)
    kinds = {p.name: p.kind for p in problem.parameters}
    grid, block, smem = rung.geometry(rung.config, shape)
    args = [values[p.name] for p in problem.parameters]
    if rung.workspace is not None:
        args.append(np.zeros(rung.workspace(rung.config, shape) // 4, np.float32))
    return gemmlab.emulate(
        compile_rung(rung),
        grid=grid,
        block=block,
        args=args,
        dynamic_smem=smem,
        check=check,
        uninitialized=[output] if kinds[case.output] == "output" else [],
        **how,
    )


@pytest.mark.parametrize("rung", RUNGS, ids=ladder.label)
@pytest.mark.slow
def test_ladder_rungs_are_clean(rung):
    names = set(CHECKS) - {"order"}
    family = problems.find(rung.problem).families[0]
    assert emulate_rung(rung, family, names).findings == ()


@pytest.mark.parametrize("name", ["naive", "shared", "sum:tree-sequential"])
def test_checks_change_neither_counters_nor_results(name):
    rung = ladder.find(name)
    plain = emulate_rung(rung, "normal", None)
    checked = emulate_rung(rung, "normal", "all")
    assert checked.counters == plain.counters and checked.findings == ()


@pytest.mark.parametrize(("name", "launches"), [("scan", 1), ("histogram", 1), ("spin_lock", 3)])
def test_other_orders_run_only_where_they_may_show(monkeypatch, name, launches):
    module, orders = importlib.import_module("gemmlab.emulator.checks.launch"), []
    execute = module.execute

    def counted(launch, *long, **how):
        orders.append(how["order"])
        return execute(launch, *long, **how)

    monkeypatch.setattr(module, "execute", counted)
    assert check(HERE / "correct" / f"{name}.cu") == () and len(orders) == launches


def test_only_what_is_asked_for_is_reported():
    path = HERE / "planted" / "race_reversed.cu"
    for names, kinds in ((["races"], {"shared race"}), (["copies", "order"], {"order dependent"})):
        found = kernel_file.run(path, Directive(), check=names).run.findings
        assert {f.kind for f in found} == kinds


@pytest.mark.parametrize(
    ("names", "error"),
    [("al", UnknownNameError), ({"races", 1}, UnknownNameError), (3, InputError)],
)
def test_checks_that_do_not_exist(names, error):
    with pytest.raises(error, match="check"):
        kernel_file.run(HERE / "correct" / "scan.cu", Directive(), check=names)


def test_what_is_no_argument_cannot_be_uninitialized():
    code = ptx("ret;")
    with pytest.raises(InputError, match="not an argument"):
        run(code, "k", (1, 1, 1), (1, 1, 1), [], check="all", uninitialized=[np.zeros(1)])


@pytest.mark.parametrize("checked", [[], ["--check", "all"]])
def test_endless_kernels_end(capsys, monkeypatch, checked):
    monkeypatch.setenv("COLUMNS", "300")
    path = str(HERE / "planted" / "never_ends.cu")
    with pytest.raises(SystemExit) as ended:
        main(["emulate", path, "--max-instructions", "2000", *checked])
    out = "".join(capsys.readouterr())
    assert ended.value.code == 4 and "more than 2,000" in out and "never_ends.cu:4" in out


@pytest.mark.parametrize("order", ["in-order", "reversed", 1])
def test_the_budget_is_of_one_warp(order):
    body = "L: add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 100; @%p1 bra L; ret;"
    geometry = (3, 1, 1), (96, 1, 1)
    run(ptx(body), "k", *geometry, [], order=order, max_instructions=301)
    with pytest.raises(BudgetError, match="300 instructions"):
        run(ptx(body), "k", *geometry, [], order=order, max_instructions=300)


def test_findings_on_the_command_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as ended:
        main(["emulate", str(HERE / "planted" / "race_reversed.cu"), "--check", "races"])
    out = capsys.readouterr().out
    assert ended.value.code == 4
    assert "1 finding" in out and "race_reversed.cu:7" in out and "after race_reversed.cu:6" in out
