"""Drawings of reports: walks over k, trees, transposes and pipelines."""

from __future__ import annotations

import pytest
from reports import MOST_BYTES, parts_of, report

ONE_BLOCK = ("--shape", "128,128,256")


@pytest.mark.slow
def test_asynchronous_copies_walk_over_k_too(capsys):
    parts = parts_of(capsys, "async-copy", *ONE_BLOCK)
    for walk in parts["The walk over K"]:
        assert len(walk["steps"]) == 256 // 16
    assert parts["Global load a"]["cost"] == 4


ADDS = {  # threads with work in each of the first steps, and in the last but one
    "tree-interleaved": [list(range(0, 1024, 2)), list(range(0, 1024, 4)), [0, 512]],
    "tree-strided": [list(range(512)), list(range(256)), [0, 1]],
    "tree-sequential": [list(range(512)), list(range(256)), [0, 1]],
}


@pytest.mark.slow
@pytest.mark.parametrize("rung", ADDS)
def test_a_reduction_has_its_tree(capsys, rung):
    parts = parts_of(capsys, rung, "--size", "4096")
    steps = parts["The tree of additions"]["steps"]
    assert [len(step) for step in steps] == [2**i for i in range(9, -1, -1)]
    threads = [[thread for thread, _, _ in steps[i]] for i in (0, 1, 8)]
    assert threads == ADDS[rung]
    added = set(range(1024))
    for step in steps:  # each word but word 0 is added once, and not read afterwards
        for _, source, target in step:
            assert source in added and target in added
            added.remove(source)
    assert added == {0}
    lanes = parts["Who adds"]
    assert lanes[4] == ({str(w): 1 for w in range(32)} if "inter" in rung else {"0": 32})


@pytest.mark.parametrize(
    ("rung", "size", "mode", "distances", "executions"),
    [
        ("warp-shuffle", "4096", "down", [16, 8, 4, 2, 1], 4 * 33),  # 4 blocks of 32 warps and one
        ("softmax:row-per-warp", "64", "bfly", [1, 2, 4, 8, 16], 64),
        ("warp-scan", "64", "up", [1, 2, 4, 8, 16], 64 * 2),  # two steps of 32 columns
    ],
)
@pytest.mark.slow
def test_shuffles_have_their_tree(capsys, rung, size, mode, distances, executions):
    found = parts_of(capsys, rung, "--size", size)["The tree in registers"]
    steps = found["exchanges"]
    assert (found["mode"], found["operation"]) == (mode, "add.f32")
    assert [step["distance"] for step in steps] == distances
    assert found["executions"] == executions
    # Lane 0 holds all values at the end, or every lane those of the lanes up to its own.
    needed = [sum(step["needed"]) for step in steps]
    assert needed == ([16, 8, 4, 2, 1] if mode == "down" else [32] * 5)
    assert steps[-1]["terms"] == ([*range(1, 33)] if mode == "up" else steps[-1]["terms"])
    assert steps[-1]["terms"][0 if mode != "up" else 31] == 32
    assert steps[0]["givers"][0] == {"down": 16, "bfly": 1, "up": None}[mode]


@pytest.mark.slow
def test_shuffles_that_are_no_tree_are_not_drawn(capsys):
    assert "The tree in registers" not in parts_of(capsys, "tree-strided", "--size", "4096")


@pytest.mark.parametrize(("rung", "stride"), [("transpose:shared", 64), ("shared-padded", 65)])
def test_a_transpose_shows_columns_of_shared_memory(capsys, rung, stride):
    passed = parts_of(capsys, rung, "--size", "128")["The transpose of a warp’s elements"]
    assert [(p["operation"], p["place"]) for p in passed] == [
        ("load", "a"), ("store", "shared memory"), ("load", "shared memory"), ("store", "b")
    ]  # fmt: skip
    first, _, column, last = (p["cells"] for p in passed)
    assert first == last == [[0, i] for i in range(32)]
    assert column == [list(divmod(stride * i, 32)) for i in range(32)]


def spans_of(capsys, rung):
    found = parts_of(capsys, rung, *ONE_BLOCK)["The pipeline of the k loop"]
    rows: dict[tuple[str, str], dict[int, dict]] = {}
    for span in found["spans"]:
        if span["tile"] is not None:
            rows.setdefault((span["row"], span["what"]), {})[span["tile"]] = span
    return found["stages"], rows, [span for span in found["spans"] if span["what"] == "wait"]


def stage_order(rows, stages, what):
    return [sorted(rows[f"stage {stage}", what]) for stage in range(stages)]


@pytest.mark.slow
def test_tiles_of_asynchronous_copies_are_in_flight_while_two_others_are_multiplied(capsys):
    stages, rows, _ = spans_of(capsys, "async-copy")
    assert stages == 3
    assert stage_order(rows, 3, "in flight") == [[0, 3, 6], [1, 4, 7], [2, 5]]
    multiplied = rows["warps 0–7", "multiply"]
    for tile in range(3, 8):
        copy = rows[f"stage {tile % 3}", "in flight"][tile]
        assert copy["start"] < multiplied[tile - 2]["start"]
        assert multiplied[tile - 1]["end"] <= copy["end"] <= multiplied[tile]["start"]


@pytest.mark.slow
def test_warps_that_copy_wait_for_those_that_multiply(capsys):
    stages, rows, waits = spans_of(capsys, "copy-warps")
    assert stages == 3 and ("warps 0–7", "fill") not in rows
    fills, multiplied = rows["warps 8–11", "fill"], rows["warps 0–7", "multiply"]
    for tile in range(3, 8):  # the stage must be empty, the next tile full
        assert multiplied[tile - 3]["end"] <= fills[tile]["start"]
        assert fills[tile]["end"] <= multiplied[tile]["start"]
    waiting = [span["end"] - span["start"] for span in waits if span["row"] == "warps 8–11"]
    assert max(waiting) > 1000


@pytest.mark.slow
def test_one_stage_is_filled_and_read_by_turns(capsys):
    stages, rows, _ = spans_of(capsys, "shared")
    assert stages == 1
    fills, multiplied = rows["warps 0–31", "fill"], rows["warps 0–31", "multiply"]
    for tile in range(7):
        assert fills[tile]["end"] <= multiplied[tile]["start"]
        assert multiplied[tile]["end"] <= fills[tile + 1]["start"]
    assert spans_of(capsys, "double-buffer")[0] == 2


@pytest.mark.slow
def test_a_rung_of_several_launches_has_the_pipeline_of_its_own(tmp_path, capsys):
    stages, rows, _ = spans_of(capsys, "warp-specialized")
    assert stages == 2 and ("warp 8", "multiply") not in rows
    fills, multiplied = rows["warp 8", "fill"], rows["warps 0–7", "multiply"]
    assert len(fills) == len(multiplied) > 2
    for tile in fills:
        assert fills[tile]["end"] <= multiplied[tile]["start"]
    assert report("warp-specialized", *ONE_BLOCK, "-o", tmp_path / "page.html") == 0
    assert (tmp_path / "page.html").stat().st_size <= MOST_BYTES
