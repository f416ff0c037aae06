"""Comparison of two climbs: the output for each rung, and the exit code."""

import json
from dataclasses import replace

import pytest
from test_records import BASE, changed

from gemmlab.cli.app import main
from gemmlab.errors import InputError
from gemmlab.lab import changes, metrics, records

SLOWER = replace(BASE, time_s=2e-3)
COUNTERS = BASE.counters or {}


@pytest.mark.parametrize(
    ("before", "after", "status", "moves"),
    [
        (BASE, BASE, "same", []),
        (BASE, replace(BASE, host_s=9.0, message="other words"), "same", []),
        (BASE, replace(BASE, verdict="wrong answer"), "broken", []),
        (BASE, replace(BASE, emulator_bits_equal=False), "broken", []),
        (replace(BASE, verdict="not run"), BASE, "fixed", []),
        (BASE, replace(BASE, verdict="skipped"), "differs", []),
        (BASE, replace(BASE, counters=None), "same", []),
        (replace(BASE, time_s=1e-3), SLOWER, "same", []),  # shown, but not judged
        (
            BASE,
            replace(BASE, counters=COUNTERS | {metrics.PTX_INSTRUCTIONS: 9001}),
            "differs",
            [("PTX instructions", 9000, 9001)],
        ),
        (
            replace(BASE, counters={"a_counter": 1, "gone": 1}),
            replace(BASE, counters={"a_counter": 2, "new": 1}),
            "differs",
            [("a_counter", 1, 2)],
        ),
    ],
)
def test_a_rung_is_what_it_was_or_not(before, after, status, moves):
    [change] = changes.compare([before], [after])
    assert (change.status, change.moves) == (status, moves)


def test_rungs_of_one_side_and_what_else_differs():
    other = replace(changed(), rung="other", arch="sm_80")
    after = replace(BASE, arch="sm_80", seed=1, versions={"x": "2"})
    found = changes.compare([BASE, other], [after])
    assert [one.status for one in found] == ["same", "only in A"]
    assert changes.conditions(found) == ["arch: sm_90a → sm_80", "seed: 0 → 1", "x: None → 2"]
    with pytest.raises(InputError, match="no rung and case in common"):
        changes.compare([BASE], [other])
    with pytest.raises(InputError, match="two records of naive"):
        changes.compare([BASE, BASE], [BASE])


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """`compare` on two lists of records: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def compare(before, after):
        for name, held in (("a.json", before), ("b.json", after)):
            text = held if isinstance(held, str) else records.dumps(held)
            (tmp_path / name).write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(["compare", "a.json", "b.json"])
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return compare


def test_compare_takes_what_climb_writes(run):
    after = replace(changed(ptx_instructions=9001), rung="naive", time_s=2e-3)
    code, out, err = run([replace(BASE, time_s=1e-3)], [after])
    assert code == 0, err
    assert "1 differs" in out and "2ms      2.000" in out and "gemmlab bench" in out
    assert "time" not in run([BASE], [BASE])[1]
    code, out, _ = run([BASE], [replace(BASE, verdict="wrong answer")])
    assert code == 1 and "pass → wrong answer  broken" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "b.json contains no records"),
        ("{", "b.json contains no records; it is not JSON"),
        ('[1, {"rung": 1}]', "b.json contains 1, which is not a record"),
        ('[{"rung": "first"}]', "a record in b.json lacks arch, bound_u"),
        (None, "a record in b.json is invalid: time_s is 'x', not float | None"),
        ('{"records": 1}', "b.json is not the file of a climb"),
        ('{"run": [], "records": []}', "b.json is not the file of a climb"),
        ('{"run": {}, "records": [], "more": 1}', "b.json is not the file of a climb"),
        ('{"run": {}, "records": []}', "b.json contains no records"),
        ('{"run": {}, "records": [1, {"rung": 1}]}', "b.json contains 1, which is not a record"),
        ('[{"rung": "first", "change": "old"}]', "written by another version"),
        ('[{"kernel": "first"}]', "a record in b.json lacks baseline"),
        ('[{"kernel": "a"}, {"rung": "b"}]', "b.json contains records of both climb and bench"),
        ("[" * 100_000, "b.json contains no records; it is not JSON"),
    ],
)
def test_what_is_no_record_is_one_sentence(run, text, told):
    damaged = json.dumps([BASE.as_json() | {"time_s": "x"}])
    code, out, err = run([BASE], text or damaged)
    assert (code, out) == (2, "") and told in err and err.count("\n") == 1
