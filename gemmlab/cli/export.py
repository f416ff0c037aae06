"""`gemmlab export`: a problem in the files of other benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="gemm, transpose, sum or vector-add.")
    ],
    folder: Annotated[Path, typer.Option("-o", "--output", help="Where to; made if missing.")],
    solution: Annotated[
        Path | None,
        typer.Option(
            help="Also this kernel file, as a solution.json; its directive says problem=, entry=."
        ),
    ] = None,
) -> None:
    """Write a problem for FlashInfer-Bench and SOL-ExecBench.

    As a definition and workloads; with a kernel file, its solution.
    """
    from gemmlab import problems
    from gemmlab.compile import source
    from gemmlab.lab.records import make_folder
    from gemmlab.lab.submission import flashinfer

    work = problems.find(problem)
    files = {"definition.json": [flashinfer.definition(work)]}
    files["workload.jsonl"] = flashinfer.workloads(work)
    if solution:
        files["solution.json"] = [flashinfer.solution(work, solution, source.read(solution))]
    make_folder(folder)
    for name, told in files.items():
        flashinfer.write(folder / name, told)
        print(folder / name)
