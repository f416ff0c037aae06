"""A PTX file is parsed once for all its kernels, and not kept forever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import needs_native
from snippets import HEADER, REGISTERS

from gemmlab.compile.ptx import describe
from gemmlab.core import disk_cache
from gemmlab.emulator import run
from gemmlab.emulator.translation.translate import translate
from gemmlab.ptx import parser
from gemmlab.ptx.parser import MODULES, Parser, parse
from gemmlab.ptx.recent import Recent

DOUBLE = """.func (.param .b32 out) twice (.param .b32 in)
{ .reg .b32 %a; ld.param.u32 %a, [in]; shl.b32 %a, %a, 1; st.param.b32 [out], %a; ret; }
"""
ENTRY = """.visible .entry k{number}(.param .u64 p0)
{{ {registers} .param .b32 given; .param .b32 taken; ld.param.u64 %q0, [p0]; mov.u32 %r1, %tid.x;
mad.wide.u32 %q1, %r1, 4, %q0; add.u32 %r1, %r1, {number}; st.param.b32 [given], %r1;
call (taken), twice, (given); ld.param.u32 %r2, [taken]; st.global.u32 [%q1], %r2; ret; }}
"""
ENTRIES = 20
FILE = HEADER + DOUBLE
FILE += "".join(ENTRY.format(number=n, registers=REGISTERS) for n in range(ENTRIES))


def result(number: int, tier: str = "auto") -> list[int]:
    x = np.zeros(32, np.uint32)
    run(FILE, f"k{number}", (1, 1, 1), (32, 1, 1), [x], tier=tier)
    return x.tolist()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Record the texts that are parsed, starting with an empty cache."""
    texts, module = list[str](), Parser.module
    monkeypatch.setenv("GEMMLAB_CACHE", str(tmp_path))

    def recorded(parser: Parser) -> Any:
        texts.append(parser.text)
        return module(parser)

    monkeypatch.setattr(Parser, "module", recorded)
    MODULES.clear()
    return texts


def test_a_file_is_parsed_once(parsed: list[str]) -> None:
    assert parse(FILE) is parse(FILE)
    for number in range(ENTRIES):
        assert describe(FILE, f"k{number}").entry == f"k{number}"
        assert result(number) == [2 * (lane + number) for lane in range(32)]
    assert parsed == [FILE]
    assert translate(FILE, "k3") is translate(FILE, "k3") is not translate(FILE, "k4")


@pytest.mark.usefixtures("parsed")
def test_a_shared_module_stays_as_it_was_parsed() -> None:
    for number in (2, 7, 2):
        result(number)
    assert parse(FILE) == Parser(FILE).module()


@needs_native
@pytest.mark.usefixtures("parsed")
def test_a_launch_hashes_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = result(5, "native")
    monkeypatch.setattr(disk_cache, "name_of", lambda parts: pytest.fail("hashed again"))
    assert result(5, "native") == result(5, "auto") == wanted


def test_what_is_large_or_old_is_not_kept(
    parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULES, "most", parser.MAX_CHARACTERS // parser.MAX_MODULES * 3)
    texts = [f"{FILE}// {n}" for n in range(4)]
    for text in (*texts, texts[1], texts[3], texts[0]):
        parse(text)
    assert [int(text[-1]) for text in parsed] == [0, 1, 2, 3, 0]
    large = FILE + " " * parser.MAX_CHARACTERS
    assert parse(large) is parse(large)  # the last module is kept, whatever its size
    parse(texts[0])
    parse(large)
    assert len(parsed) == 8


def test_what_fails_is_made_again() -> None:
    recent = Recent[str, int](2)
    with pytest.raises(ZeroDivisionError):
        recent.get("a", lambda: 1 // 0)
    assert recent.get("a", lambda: 1) == recent.get("a", lambda: 2) == 1
