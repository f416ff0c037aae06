"""`gemmlab distributed`: plan products on meshes, and measure the links of this machine."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from gemmlab.cli.options import AsJson, check_writable
from gemmlab.errors import DeviceError, InputError, ShapeError

distributed = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@distributed.callback()
def about() -> None:
    """Plan products larger than one GPU, and measure links. See `gemmlab docs distributed`."""


@distributed.command()
def plan(
    shape: Annotated[str, typer.Argument(metavar="M,N,K", help="Shape of the product.")],
    mesh: Annotated[
        str, typer.Option(help="Sizes of the mesh, such as 4 or 16x8; the last is inside a node.")
    ] = "4",
    a: Annotated[
        str | None,
        typer.Option("-a", help="Placements of a, one per dimension: S(0),R. Default: all S(0), …"),
    ] = None,
    b: Annotated[str | None, typer.Option("-b", help="Placements of b, likewise.")] = None,
    c: Annotated[
        str | None, typer.Option("-c", help="Placements of the result. Default: the least moves.")
    ] = None,
    links: Annotated[
        Path | None, typer.Option(help="A model of links from `gemmlab distributed measure`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a product on a mesh, which need not exist: bytes per link, times, memory, and why.

    Without -a and -b, the mesh's first dimension has the rows of both, its second the columns.
    """
    from gemmlab import distributed as gd
    from gemmlab.distributed import links as models

    m, n, k = _numbers(shape, 3, "M,N,K", ",")
    sizes = _numbers(mesh, None, "4 or 16x8", "x")
    usual = ",".join([*("S(0)", "S(1)")[: len(sizes)], *["R"] * (len(sizes) - 2)])
    machine = models.load(links) if links else None
    placed = (a or usual, b or usual)
    found = gd.plan((m, k), (k, n), mesh=sizes, placed=placed, out_placements=c, machine=machine)
    if as_json:
        record = dataclasses.asdict(found) | {"algorithm": found.algorithm, "moved": found.moved}
        print(json.dumps(record, indent=2))
    else:
        print(found)


@distributed.command()
def measure(
    processes: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per GPU.")
    ] = None,
    sizes: Annotated[
        str, typer.Option(metavar="N,N,…", help="Sizes of the square products.")
    ] = "4096,8192,16384,32768",
    programs: Annotated[
        bool, typer.Option(help="Also other placements and shapes, and two programs.")
    ] = True,
    device: Annotated[str, typer.Option(help="cuda, or cpu for a trial with gloo.")] = "cuda",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the record to this file.")
    ] = None,
    links: Annotated[
        Path | None, typer.Option(help="Write the fitted model of links to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time products on all GPUs of this machine beside PyTorch's, and fit the model of links.

    Each row has the time, the speed, the efficiency against one GPU, the predicted time, and the
    largest error in u = 2^-24 of |A||B|.
    """
    from gemmlab.distributed import launching
    from gemmlab.distributed import links as models

    check_writable(output)
    check_writable(links, "--links")
    measured = launching.measure(device, processes, _numbers(sizes, None, "N,N,…", ","), programs)
    record, ended = measured
    text = json.dumps(record, indent=2) + "\n"
    if output:
        output.write_text(text)
    if links:
        models.from_json(record["machine"]).save(links)
    sys.stdout.write(text if as_json else launching.table(record))
    if ended:
        raise DeviceError(f"{ended}; what was measured before is above")


def _numbers(text: str, count: int | None, form: str, separator: str) -> list[int]:
    try:
        found = [int(word) for word in text.lower().replace("×", "x").split(separator)]
    except ValueError:
        raise ShapeError(f"{text!r} is not of the form {form}") from None
    if count is not None and len(found) != count:
        raise ShapeError(f"{text!r} has {len(found)} sizes; it must be {form}")
    if min(found) < 1:
        raise InputError(f"{text!r} has a size below 1")
    return found
