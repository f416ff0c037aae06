"""The command `gemmlab explain`."""

import json
import xml.dom.minidom
from functools import partial

import pytest

from gemmlab.errors import InputError


@pytest.fixture
def gemmlab(gemmlab, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    return partial(gemmlab, "explain")


def test_the_page_has_its_sections_and_no_more_than_a_screen_and_a_half(gemmlab):
    code, out, err = gemmlab("naive", "--size", "64", "--gpu", "h200")
    assert code == 0 and not err and "\x1b" not in out
    for section in ("Work", "Roofline", "Launch", "Threads", "memory", "Model", "Caches"):
        assert section in out
    assert len(out.splitlines()) <= 98 and max(map(len, out.splitlines())) <= 100


def test_json_is_one_object_and_nothing_else(gemmlab):
    code, out, _ = gemmlab("transpose:shared", "--shape", "64,65", "--json", "--gpu", "A100")
    told = json.loads(out)
    assert code == 0 and told["shape"] == {"m": 64, "n": 65}
    assert told["gpu"]["name"] == "A100 80GB" and told["gpu"]["ridge"] > 1
    assert {"work", "points", "counted", "rows", "occupancy", "geometry", "caches"} <= told.keys()
    assert {"model", "counted", "difference", "reason"} <= told["rows"][0].keys()


def test_the_page_as_svg_needs_no_network(gemmlab, tmp_path):
    code, _, _ = gemmlab("naive", "--size", "8", "--gpu", "H200", "--svg", str(tmp_path / "p.svg"))
    text = (tmp_path / "p.svg").read_text()
    assert code == 0 and "url(http" not in text and "@font-face" not in text
    xml.dom.minidom.parseString(text)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["nave"], "Did you mean 'naive'"),
        (["naive", "--gpu", "GTX"], "no GPU 'GTX' in the table; known: B200, H200"),
        (["naive", "--shape", "1,2"], "must be M,N,K"),
        (["naive", "--size", "8", "--shape", "1,2,3"], "not both"),
        (["naive", "--size", "0"], "m = 0"),
        (["sum:vectorized", "--layout", "course"], "layout 'row' only"),
        (["naive", "--svg", "/no/such/folder/p.svg"], "does not exist"),
    ],
)
def test_mistakes_are_one_message(gemmlab, args, told):
    code, out, err = gemmlab(*args)
    assert code == InputError.exit_code and not out
    assert told in err and "Traceback" not in err
