"""`gemmlab explain`: explain the performance of a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmlab.cli.options import AsJson, Layout, check_writable, shape_of
from gemmlab.core import status


def explain(
    rung: Annotated[
        str, typer.Argument(metavar="RUNG", help="Name of a rung; see `gemmlab list`.")
    ],
    size: Annotated[int | None, typer.Option(help="Size of every axis.")] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="One size per axis; M,N for transpose.")
    ] = None,
    layout: Layout = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The GPU to explain it for: H200, A100, RTX2080Ti, …. Default: this machine's "
            "GPU, or H200 if there is none."
        ),
    ] = None,
    as_json: AsJson = False,
    svg: Annotated[Path | None, typer.Option(help="Also write the page as SVG.")] = None,
) -> None:
    """Explain the performance of a kernel; needs no GPU.

    Shows memory traffic, roofline, occupancy and access patterns, and compares a model with the
    emulator's counts: see `gemmlab docs explain`.
    """
    import json

    from gemmlab import problems
    from gemmlab.hardware import specs
    from gemmlab.kernels import ladder
    from gemmlab.lab.explain import default_gpu
    from gemmlab.lab.explain import explain as explain_rung
    from gemmlab.lab.records import write_text
    from gemmlab.report import explanation as page
    from gemmlab.report import tables

    found = ladder.find(rung, layout)
    problem = problems.find(found.problem)
    sizes = shape_of(problem, size, shape)
    product = specs.product(gpu) if gpu is not None else default_gpu()
    check_writable(svg, "--svg")
    status.say(f"explaining {ladder.label(found)}")
    explanation = explain_rung(problem, found, sizes, product)
    if svg:
        write_text(svg, page.as_svg(explanation))
    if as_json:
        print(json.dumps(explanation.as_json(), indent=2))
    else:
        page.show(explanation, tables.console())
