"""`gemmlab docs`: the pages, which every install has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

PACKAGE = Path(__file__).parent.parent
# A wheel has the pages inside the package, a checkout beside it.
FOLDERS = (PACKAGE / "docs", PACKAGE.parent / "docs")


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="Its name. Default: list the pages.")
    ] = None,
) -> None:
    """Read a page of the documentation, or list the pages.

    On a terminal a page is laid out for it; elsewhere its Markdown is printed as it is.
    """
    from gemmlab.errors import UnknownNameError
    from gemmlab.report import tables

    found = pages()
    out = tables.console()
    if page is None:
        rows = [[name, _title(path)] for name, path in found.items()]
        out.print(tables.plain_table(["page", "what it is about"], rows))
        return
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in found:
        raise UnknownNameError(f"no page {page!r}; there is: {', '.join(found)}")
    text = found[name].read_text(encoding="utf-8")
    if out.is_terminal:
        from rich.markdown import Markdown

        out.print(Markdown(text))
    else:
        sys.stdout.write(text)


def pages() -> dict[str, Path]:
    """The files of the pages, by name. Raises MissingDependencyError for an install without."""
    from gemmlab.errors import MissingDependencyError

    folder = next((folder for folder in FOLDERS if (folder / "checks.md").is_file()), None)
    if folder is None:
        raise MissingDependencyError(
            "this install of gemmlab has no pages; run: pip install --force-reinstall gemmlab"
        )
    return {path.stem: path for path in sorted(folder.glob("*.md"))}


def _title(path: Path) -> str:
    """The heading that the page begins with."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()
