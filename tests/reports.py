"""What tests ask of `gemmlab report`: pages, and their data as JSON."""

from __future__ import annotations

import json

import pytest

from gemmlab.cli.app import main

MOST_BYTES = 3_000_000  # of a page
PRINTED: dict[tuple[object, ...], str] = {}


def report(*args):
    with pytest.raises(SystemExit) as ended:
        main(["report", *map(str, args)])
    return ended.value.code or 0


def json_of(capsys, *args):
    """What `gemmlab report … --json` prints about a source, which is emulated once."""
    if args not in PRINTED:
        capsys.readouterr()
        assert report(*args, "--json") == 0
        PRINTED[args] = capsys.readouterr().out
    return json.loads(PRINTED[args])


def parts_of(capsys, *args):
    """The data of the parts of a report, by title."""
    held = json_of(capsys, *args)
    return {p["title"]: p["data"] for section in held["sections"] for p in section["parts"]}
