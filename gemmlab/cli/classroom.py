"""`gemmlab judge FOLDER`: a class or a contest."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gemmlab.cli.options import check_writable

if TYPE_CHECKING:
    from gemmlab.lab.classroom.grades import Grade
    from gemmlab.lab.directives import Directive
    from gemmlab.lab.submission.judging import Options


@dataclass(frozen=True)
class Outcome:
    """Where the grades go, and on which machines the files are judged."""

    board: Path | None
    csv: Path | None
    jobs: int | None
    dask: str | None
    as_json: bool


def judge_folder(folder: Path, words: Directive, options: Options, wanted: Outcome) -> None:
    """Judge the submissions of a folder, and write their grades after each verdict."""
    from gemmlab.core import status
    from gemmlab.lab.classroom import judging
    from gemmlab.lab.classroom.folder import submissions
    from gemmlab.lab.classroom.grades import ranking
    from gemmlab.lab.records import write_text
    from gemmlab.lab.submission import isolation
    from gemmlab.report import grades, tables
    from gemmlab.report.html import board

    for file in filter(None, (wanted.board, wanted.csv)):
        check_writable(file)
    if wanted.dask is None:
        isolation.checked(options.sandbox)
    found = submissions(folder)
    known = grades.read(wanted.csv) if wanted.csv else {}
    done: list[Grade] = []

    def write(every: list[Grade]) -> None:
        places = ranking(every)
        if wanted.csv:
            write_text(wanted.csv, grades.spreadsheet(places))
        if wanted.board:
            write_text(wanted.board, board.page(folder.resolve().name, places).markup())

    names = {one.title for one in found}

    def progress(grade: Grade) -> None:
        done.append(grade)
        # If this run is interrupted, the files still hold what an earlier one found.
        earlier = [known[name] for name in known.keys() & names - {one.file for one in done}]
        write([*done, *earlier])
        text = f"{len(done)}: {grade.file}: {grade.verdict}, {grade.took_s:.1f} s"
        print(text, file=sys.stderr)
        status.say(f"judging {len(found)} submissions: {len(done)} done")

    status.say(f"judging {len(found)} submissions")
    with _executor(wanted) as executor:
        every = judging.judge_all(found, words, options, executor, known, progress)
    write(every)
    places = ranking(every)
    if wanted.as_json:
        print(json.dumps([asdict(place) for place in places], indent=2))
        return
    rows = [grades.cells(place) for place in places]
    tables.console().print(tables.plain_table(grades.HEADINGS, rows))


def _executor(wanted: Outcome) -> AbstractContextManager[Executor]:
    from gemmlab.lab.classroom import judging

    if wanted.dask:
        return judging.elsewhere(wanted.dask)
    processors = len(os.sched_getaffinity(0))
    return judging.here(wanted.jobs or max(1, processors // 2))
