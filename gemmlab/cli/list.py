"""`gemmlab list`: list the rungs of every ladder."""

from __future__ import annotations

from gemmlab.cli.options import AsJson


def list_(as_json: AsJson = False) -> None:
    """List the rungs of every ladder."""
    import json

    from gemmlab import problems
    from gemmlab.kernels import ladder
    from gemmlab.report import tables

    rungs = [rung for name in problems.NAMES for rung in ladder.rungs(name)]
    if as_json:
        names = ("problem", "name", "course_name", "change")
        print(json.dumps([{n: getattr(rung, n) for n in names} for rung in rungs], indent=2))
        return
    rows = [[rung.problem, ladder.qualified(rung), rung.change] for rung in rungs]
    tables.console().print(tables.plain_table(["problem", "rung", "what it changes"], rows))
