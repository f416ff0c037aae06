"""`gemmlab docs`: read the documentation, which is part of every install."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

PACKAGE = Path(__file__).parent.parent
# The pages are inside the package in a wheel, beside it in a checkout.
FOLDERS = (PACKAGE / "docs", PACKAGE.parent / "docs")


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="Name of a page. Default: list the pages.")
    ] = None,
) -> None:
    """Read a page of the documentation, or list the pages.

    The page is formatted on a terminal, and printed as Markdown otherwise.
    """
    from gemmlab.errors import UnknownNameError
    from gemmlab.report import tables

    found = pages()
    out = tables.console()
    if page is None:
        rows = [[name, _title(path)] for name, path in found.items()]
        out.print(tables.plain_table(["page", "title"], rows))
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        raise UnknownNameError(f"no page {page!r}; available: {', '.join(found)}")
    text = found[name].read_text(encoding="utf-8")
    if out.is_terminal:
        from rich.markdown import Markdown

        out.print(Markdown(text))
    else:
        sys.stdout.write(text)


def pages() -> dict[str, Path]:
    """Return the pages' files by name. Raises MissingDependencyError if they are not installed."""
    from gemmlab.errors import MissingDependencyError

    folder = next((folder for folder in FOLDERS if (folder / "checks.md").is_file()), None)
    if folder is None:
        raise MissingDependencyError(
            "the documentation is missing; run: pip install --force-reinstall gemmlab"
        )
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def _title(path: Path) -> str:
    """Return the heading in the page's first line."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()
