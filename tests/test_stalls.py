"""Where warps spend their time: readings that belong to machine code, and predictions without."""

import json
import re
from dataclasses import replace

import pytest

from gemmlab.cli.app import main
from gemmlab.compile.cute import compile_rung
from gemmlab.kernels import ladder
from gemmlab.lab.explain import stalls
from gemmlab.timing.facts import disassemble

READINGS = {(problem, rung): found for problem, rung, found in stalls.all_stalls()}


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


@pytest.mark.parametrize("key", READINGS, ids=":".join)
def test_shares_of_a_reading_are_of_one(key):
    found = READINGS[key]
    assert found.is_measured and re.match("measured on NVIDIA H[12]00.* at ", found.about)
    assert sum(found.by_address.values()) == pytest.approx(1)
    assert sum(found.reasons.values()) == pytest.approx(1)
    assert list(found.reasons.values()) == sorted(found.reasons.values(), reverse=True)
    assert set(found.main) <= set(found.by_address)
    assert set(found.main.values()) <= set(found.reasons)


@pytest.mark.parametrize(
    ("rung", "reason", "least"),
    [
        ("naive", "long scoreboard", 0.85),
        ("uncoalesced", "LG throttle", 0.85),
        ("shared", "MIO throttle", 0.35),
        ("double-buffer", "not selected", 0.4),
    ],
)
def test_the_ladder_waits_for_what_its_page_says(rung, reason, least):
    main_reason, share = next(iter(READINGS["gemm", rung].reasons.items()))
    assert main_reason == reason and share >= least


@pytest.mark.slow
def test_a_reading_belongs_to_machine_code():
    artifact = compile_rung(ladder.find("naive"))
    found = stalls.measured(artifact)
    assert found is not None
    code = disassemble(artifact.cubin, artifact.entry).instructions
    assert set(found.by_address) <= {one.address for one in code}
    # Warps are where the loop uses what it loads, far more than at the loads.
    busiest = max(found.by_address, key=lambda address: found.by_address[address])
    assert next(one for one in code if one.address == busiest).root == "FFMA"
    other = replace(code[0], word=code[0].word ^ 1)
    assert stalls.digest(code) != stalls.digest([other, *code[1:]])
    assert stalls.measured(compile_rung(ladder.find("naive", "course"))) is None


@pytest.mark.slow
def test_show_prints_the_reading_or_says_predicted(capsys):
    code, out, _ = run(capsys, "show", "shared", "--sass", "--stalls")
    assert code == 0 and out.startswith("stalls: measured on NVIDIA H200")
    assert out.splitlines()[1].startswith("MIO throttle 3")
    code, out, _ = run(
        capsys, "show", "shared", "--set", "block_m=16 block_n=16 block_k=16", "--sass", "--stalls"
    )
    assert code == 0 and out.startswith("stalls: predicted for H200")
    shares = [float(line.split()[0]) for line in out.splitlines()[3:] if line[:6].strip()]
    assert sum(shares) == pytest.approx(100, abs=1)
    code, _, err = run(capsys, "show", "naive", "--stalls")
    assert code and "--stalls requires --sass" in err


@pytest.mark.slow
def test_a_report_has_the_same_shares_by_instruction_and_by_line(capsys):
    code, out, _ = run(capsys, "report", "naive", "--size", "64", "--json")
    assert code == 0
    parts = [part for section in json.loads(out)["sections"] for part in section["parts"]]
    [panes] = [part for part in parts if part["kind"] == "code"]
    sums = {
        pane: sum(row.get("stalls %", 0) for row in rows) for pane, rows in panes["data"].items()
    }
    assert sums["SASS"] == pytest.approx(100, abs=2)  # without the smallest shares
    assert sums["Source"] == pytest.approx(sums["PTX"], abs=2) == pytest.approx(100, abs=5)
    assert "measured on NVIDIA H200" in panes["caption"]
