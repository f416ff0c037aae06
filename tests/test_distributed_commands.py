"""`gemmlab distributed plan`, without PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gemmlab.cli.app import main


@pytest.fixture
def gemmlab(capsys):
    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(["distributed", *args])
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_a_plan_is_printed(gemmlab):
    code, out, _ = gemmlab("plan", "8192,4096,2048", "--mesh", "4")
    assert code == 0 and out.startswith("8192×2048 · 2048×4096 on 4 processes of H200\n")
    code, out, _ = gemmlab("plan", "8192,8192,8192", "--mesh", "2x2x2", "--json")
    plan = json.loads(out)
    assert code == 0 and plan["mesh"] == [2, 2, 2]
    assert plan["a"] == [0, 1, "R"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["plan", "1,2"], "'1,2' has 2 sizes; it must be M,N,K"),
        (["plan", "1,2,x"], "'1,2,x' is not of the form M,N,K"),
        (["plan", "8,8,0"], "has a size below 1"),
        (["plan", "8,8,8", "-a", "S(3)"], "S(0), S(1), R, P can"),
        (["plan", "8,8,8", "--links", "/dev/null"], "/dev/null is no model of links"),
        (["measure", "--device", "tpu"], "no device 'tpu'"),
    ],
)
def test_errors_are_one_sentence(gemmlab, args, told):
    code, out, err = gemmlab(*args)
    assert (code, out) == (2, "") and told in err and err.count("\n") == 1


def test_plans_need_no_pytorch():
    code = "import sys, gemmlab.distributed as gd; gd.plan((8, 8), (8, 8), mesh=(2,)); "
    code += "assert not {'torch', 'cutlass', 'cuda'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
