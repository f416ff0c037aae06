"""Patterns of accesses, and the pictures of an explanation."""

import numpy as np
import pytest
from explaining import H200, explained, row
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmlab.emulator.counters import rules
from gemmlab.lab.explain.patterns import Pattern
from gemmlab.report import explanation_pictures


@pytest.mark.parametrize(("name", "wavefronts"), [("shared", 32), ("shared-padded", 1)])
def test_a_stride_of_64_is_a_32_way_conflict_and_65_is_none(name, wavefronts):
    found = explained(f"transpose:{name}", 128, 128)
    requests, waves = (row(found, f"shared load {what}") for what in ("requests", "wavefronts"))
    assert waves.counted == wavefronts * requests.counted
    (load,) = (p for p in found.counted.patterns if (p.space, p.operation) == ("shared", "load"))
    assert (load.cost, load.least) == (wavefronts, 1)
    stride = 64 if wavefronts == 32 else 65
    assert f"stride {stride} words: gcd({stride}, 32) = {wavefronts}" in load.sentence
    lines = explanation_pictures.bank_lines(load)
    assert len(lines) == wavefronts
    assert wavefronts == 1 or lines[3] == "3" + 31 * "·"


def test_naive_is_a_broadcast_and_a_coalesced_load():
    found = explained("naive", 64, 64, 64)
    a, b, c = found.counted.patterns
    assert [p.target for p in (a, b, c)] == ["a", "b", "c"]
    assert "broadcast" in a.sentence and (a.cost, a.bytes_used) == (1, 4)
    assert "coalesced" in b.sentence and (b.cost, b.bytes_used) == (4, 128)
    assert explanation_pictures.sector_lines(a, 80) == ["[*·······]"]
    assert explanation_pictures.sector_lines(c, 80) == ["[01234567][89abcdef][ghijklmn][opqrstuv]"]
    assert found.counted.loop.operations == found.counted.loop.chain  # one dependent chain of sums
    sectors = row(found, "global load sectors")
    assert sectors.difference == pytest.approx(-3 / 8) and "share a sector" in sectors.reason


def test_owners_show_how_warps_lie_over_the_tile():
    owners = explained("warp-tile", 128, 128, 8).counted.owners
    assert len(owners) == 128
    assert set(owners) == {64 * str(i) + 64 * str(i + 1) for i in (0, 2, 4, 6)}
    assert explanation_pictures.tile_lines(owners)[2] == 16 * "2" + 16 * "3"


def pattern(addresses, width, space, operation="load"):
    rows, on = np.array([addresses]), np.array([[a is not None for a in addresses]])
    rows = np.where(on, rows, 0).astype(np.int64)
    if space == "global":
        cost = rules.sectors(rows, on)
    else:
        cost = int(rules.wavefronts(rows, on, width, operation == "load")[0][0])
    return Pattern(space, operation, "", width, 1, "", tuple(addresses), cost, 1, 0, "")


lanes = st.lists(st.one_of(st.none(), st.integers(0, 255)), min_size=32, max_size=32)


@pytest.mark.slow
@given(lanes, st.sampled_from([4, 8, 16]), st.sampled_from(["load", "store"]))
@settings(max_examples=60, deadline=None)
def test_a_picture_has_a_line_per_wavefront_and_brackets_per_sector(places, width, operation):
    addresses = [None if place is None else place * width for place in places]
    if all(address is None for address in addresses):
        return
    shared = pattern(addresses, width, "shared", operation)
    lines = explanation_pictures.bank_lines(shared)
    assert len(lines) == shared.cost and {len(line) for line in lines} == {32}
    words = {a + i for a in addresses if a is not None for i in range(0, width, 4)}
    drawn = sum(cell != "·" for line in lines for cell in line)
    assert drawn >= len(words)  # a word read in two phases is drawn twice
    assert len(explanation_pictures.picture(shared, 80)) <= 5

    moved = pattern(addresses, width, "global", operation)
    text = "".join(explanation_pictures.sector_lines(moved, 80))
    assert text.count("[") == moved.cost
    assert sum(cell not in "[]·" for cell in text) == len(words)


@pytest.mark.parametrize("width", [30, 64])
def test_a_roofline_holds_its_points(width):
    found = explained("naive", 64, 64, 64)
    points = [(mark, p.intensity, p.tflops) for mark, p in zip("abc", found.points, strict=True)]
    points.append(("m", 2 * H200.ridge, H200.fp32_tflops / 500))  # a measured one, below the roof
    lines = explanation_pictures.roofline_lines(H200, points, found.caches.wavefront_tflops, width)
    drawn = "".join(lines[:-2])
    assert set("abc") <= set(drawn) or "*" in drawn
    assert "m" in lines[7] and "m" not in "".join(lines[:7])
    assert "╌" in drawn and "─" in drawn
    assert all(len(line) <= width + 8 for line in lines)
