"""A page of sections and parts, as one HTML file without links to a network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from gemmlab.core.packages import VL_CONVERT

_NUMBER = re.compile(r"[–\-+−]?(\d[\d.,]*\s?[^\s\d]{0,4})?")  # with a unit, or nothing
_EXPORT = "window.vegaEmbed = vegaEmbed;"  # the bundle is a module; the page's script is not


@dataclass(frozen=True)
class Part:
    """A picture or a table: its HTML, and the same content as JSON data."""

    kind: str  # "chart", "drawing", "table" or "code"
    title: str
    caption: str
    data: Any
    body: str
    name: str = ""  # the id on the page
    spec: Mapping[str, Any] | None = None  # of a chart: Vega-Lite
    wide: bool = False  # a drawing with its caption below it, not beside it

    def markup(self) -> str:
        """Return the part as an HTML figure."""
        title = f"<h3>{text(self.title)}</h3>" if self.title else ""
        caption = f"<figcaption>{text(self.caption)}</figcaption>" if self.caption else ""
        name = f' id="{self.name}"' if self.name else ""
        kind = f"{self.kind} wide" if self.wide else self.kind
        return f'<figure class="{kind}"{name}>{title}{self.body}{caption}</figure>'


@dataclass(frozen=True)
class Section:
    """Parts under a heading. The page's script closes a folded section; paper shows it."""

    title: str
    text: str
    parts: Sequence[Part]
    folded: bool = False

    @property
    def name(self) -> str:
        """The section's id on the page."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """`facts` describe the run below the title; `tiles` are the headline numbers: label → value."""

    title: str
    facts: Sequence[str]
    tiles: Mapping[str, str] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    command: str = "gemmlab report"  # that made it

    def as_json(self) -> dict[str, Any]:
        """Return the content of every section and picture as JSON data."""
        return {
            "title": self.title,
            "facts": list(self.facts),
            "numbers": dict(self.tiles),
            "sections": [
                {
                    "title": section.title,
                    "text": section.text,
                    "parts": [
                        {"kind": p.kind, "title": p.title, "caption": p.caption, "data": p.data}
                        for p in section.parts
                    ],
                }
                for section in self.sections
            ],
        }

    def markup(self) -> str:
        """Return the page as the text of an HTML file.

        Raises MissingDependencyError if the page has charts and vl-convert is not installed.
        """
        charts = any(part.kind == "chart" for s in self.sections for part in s.parts)
        values = {
            "title": text(self.title),
            "command": text(self.command),
            "style": _asset("page.css"),
            "facts": "".join(f"<span>{text(fact)}</span>" for fact in self.facts),
            "tiles": "".join(
                f"<div><b>{text(value)}</b><span>{text(label)}</span></div>"
                for label, value in self.tiles.items()
            ),
            "links": "".join(
                f'<a href="#{section.name}">{text(section.title)}</a>' for section in self.sections
            ),
            "sections": "\n".join(map(_section, self.sections)),
            "library": f'<script type="module">{library()}</script>' if charts else "",
            "script": _asset("page.js"),
        }
        return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], _asset("page.html"))


def _section(section: Section) -> str:
    about = f"<p>{text(section.text)}</p>" if section.text else ""
    parts = "\n".join(part.markup() for part in section.parts)
    heading, content = f"<h2>{text(section.title)}</h2>", f"{about}{parts}"
    if section.folded:
        content = f"<details open><summary>{heading}</summary>{content}</details>"
    else:
        content = f"{heading}{content}"
    return f'<section id="{section.name}">{content}</section>'


def text(value: str) -> str:
    """Escape a text for HTML."""
    return html.escape(value)


@dataclass(frozen=True)
class Link:
    """A cell of a table that leads to a place on the page."""

    words: str
    target: str  # id

    def markup(self) -> str:
        return f'<a href="#{text(self.target)}">{text(self.words)}</a>'


Cell = str | Link


def table(
    title: str, caption: str, headings: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> Part:
    """Return a table. Columns of numbers align right; the first column names the row."""
    cells = [list(row) for row in rows]
    body = [[c.words if isinstance(c, Link) else c for c in row] for row in cells]
    numeric = [
        index > 0 and all(_NUMBER.fullmatch(row[index]) for row in body)
        for index in range(len(headings))
    ]
    marks = [' class="number"' if right else "" for right in numeric]
    head = "".join(f"<th{mark}>{text(h)}</th>" for mark, h in zip(marks, headings, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(f"<td{m}>{inline(c)}</td>" for m, c in zip(marks, row, strict=True))
        + "</tr>"
        for row in cells
    )
    data = [dict(zip(headings, row, strict=True)) for row in body]
    grid = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return Part("table", title, caption, data, f'<div class="scroll">{grid}</div>')


def inline(cell: Cell) -> str:
    """Return a cell as HTML."""
    return cell.markup() if isinstance(cell, Link) else text(cell)


def facts(pairs: Mapping[str, str]) -> Part:
    """Return a table of names and values, one pair per row."""
    lines = "".join(f"<tr><td>{text(a)}</td><td>{text(b)}</td></tr>" for a, b in pairs.items())
    body = f'<div class="scroll"><table class="pairs"><tbody>{lines}</tbody></table></div>'
    return Part("table", "", "", dict(pairs), body)


def embedded(data: Any) -> str:
    """Return JSON for a script element: no text in it can end the element."""
    return json.dumps(data, allow_nan=False, ensure_ascii=False).replace("</", "<\\/")


@cache
def library() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as the text of one JavaScript module.

    Raises MissingDependencyError if vl-convert is not installed.
    """
    bundle: str = VL_CONVERT.load().javascript_bundle(_EXPORT)
    return bundle.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
