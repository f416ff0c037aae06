"""Source, PTX and machine code side by side, with the counts of each line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import gemmlab
from gemmlab import sass
from gemmlab.compile.artifact import Artifact
from gemmlab.core.figures import scaled
from gemmlab.cubin import tools
from gemmlab.cubin.code import read
from gemmlab.cubin.control import decode
from gemmlab.emulator import Finding, Run
from gemmlab.errors import CompileError, MissingDependencyError
from gemmlab.lab.explain.stalls import Stalls
from gemmlab.report import listing
from gemmlab.report.html.page import Link, Part, text

_AROUND = 4  # lines of a source file shown before the first and after the last executed line
_SHOWN = (0, 3, 5, 6)  # of listing.COLUMNS: instructions, global sectors, wavefronts, conflicts
STALLS = "stalls %"
_LEAST_SHOWN = 0.0005  # smaller shares of stalls are left out
_MOST_ROWS = 2500  # of a pane
_MOST_TEXT = 160  # characters of a line


@dataclass(frozen=True)
class Row:
    """One line of one pane. `at` is the source line "file:12" that it belongs to, or "". `stalls`:
    its share of the time of warps, of 1; `why`: the main reason."""

    number: str
    text: str
    at: str
    costs: tuple[int, ...]
    stalls: float = 0.0
    why: str = ""
    ptx_line: int = 0


def anchor(at: str) -> str:
    """Return the id of a source line "path/file:12" on the page."""
    name, _, number = at.rpartition(":")
    return f"line-{PurePath(name).name}-{number}"


def link(at: str) -> Link | str:
    """Return a link to a source line; "" for no line."""
    return Link(PurePath(at).name, anchor(at)) if at else ""


def hottest(run: Run, counters: Sequence[str]) -> Link | str:
    """Return a link to the source line with the largest sum of counters; "" if it is 0."""
    sums = {
        at: sum(own.get(name, 0) for name in counters)
        for at, own in run.by_source_line().items()
        if at and _local(at.rpartition(":")[0]).is_file()
    }
    most = max(sums, key=lambda at: sums[at], default="")
    return link(most) if most and sums[most] else ""


def panes(
    artifact: Artifact,
    run: Run,
    findings: Sequence[Finding] = (),
    pictures: Mapping[str, str] | None = None,
    stalls: Stalls | None = None,
) -> Part:
    """Return the code of a kernel with what a launch executed of it.

    pictures: source line → id of the drawing of its access. stalls: where warps spend their time.
    """
    shown = {
        "Source": _source(run, findings),
        "PTX": _ptx(artifact, run),
        "SASS": _sass(artifact, run, stalls),
    }
    if stalls is not None:
        shown = _with_stalls(shown)
    headings = [listing.COLUMNS[i][0].replace("-\n", "").replace("\n", " ") for i in _SHOWN]
    said: dict[str, list[str]] = {}
    for finding in findings:
        if finding.site.source:
            said.setdefault(finding.site.source, []).append(f"{finding.kind}: {finding.message}")
    body, data = [], {}
    for name, all_rows in shown.items():
        rows = _hot(all_rows)
        if not rows:
            continue
        columns = _columns(rows, headings)
        names = "".join(f"<th>{text(heading)}</th>" for heading, _, _ in columns)
        head = f'<tr><th></th>{names}<th class="text">{name}</th></tr>'
        heat = _heat(rows)
        lines = [
            _line(row, columns, hot, name == "Source", said.get(row.at, []), pictures or {})
            for row, hot in zip(rows, heat, strict=True)
        ]
        body.append(
            f'<div class="pane" data-pane="{name}"><div class="rows"><table>'
            f"<thead>{head}</thead><tbody>{''.join(lines)}</tbody></table></div></div>"
        )
        data[name] = [_as_json(row, columns) for row in rows]
    caption = (
        "Select a line to see what the compiler made of it, and where it came from. Counts are of "
        "the emulated launch. [waits 0] marks an instruction that waits for results, by scoreboard."
    )
    if stalls is None:
        caption += " The shade is the number of instructions that warps executed."
    else:
        caption += (
            f" Stalls: at which instruction resident warps are, {stalls.about}; the shade is their "
            "share, the pointer shows the main reason."
        )
    return Part("code", "", caption, data, f'<div class="panes">{"".join(body)}</div>')


def _heat(rows: Sequence[Row]) -> list[float]:
    """Return the shades of rows, from 0 to 1: by stalls, if they are known, or by instructions."""
    found = [row.stalls for row in rows]
    if not any(found):
        found = [row.costs[0] if row.costs else 0 for row in rows]
    return [own / (max(found) or 1) for own in found]


def _with_stalls(shown: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """Add what the rows of the machine code have to the PTX and source lines they belong to."""

    def by(place: Callable[[Row], str | int]) -> Callable[[Row], Row]:
        spent: dict[str | int, dict[str, float]] = {}
        for row in shown["SASS"]:
            own = spent.setdefault(place(row), {})
            own[row.why] = own.get(row.why, 0.0) + row.stalls

        def added(row: Row) -> Row:
            own = spent.get(place(row))
            if not own or not place(row):
                return row
            return replace(row, stalls=sum(own.values()), why=max(own, key=lambda why: own[why]))

        return added

    of_line, of_place = by(lambda row: row.ptx_line), by(lambda row: row.at)
    return {
        "Source": [of_place(row) for row in shown["Source"]],
        "PTX": [of_line(row) for row in shown["PTX"]],
        "SASS": list(shown["SASS"]),
    }


# A column: its heading, the number of a row (None: nothing to show), and its text.
_Column = tuple[str, Callable[[Row], float | None], Callable[[float], str]]


def _columns(rows: Sequence[Row], headings: Sequence[str]) -> list[_Column]:
    """Return the columns that have a number in some row."""

    def cost(index: int) -> Callable[[Row], float | None]:
        return lambda row: row.costs[index] if index < len(row.costs) else None

    def share(row: Row) -> float | None:
        return 100 * row.stalls if row.stalls >= _LEAST_SHOWN else None

    columns: list[_Column] = [(STALLS, share, "{:.1f}".format)]
    columns += [(heading, cost(i), scaled) for i, heading in enumerate(headings)]
    return [column for column in columns if any(column[1](row) for row in rows)]


def _hot(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that are executed most, in their order, with a row for each gap."""
    if len(rows) <= _MOST_ROWS:
        return list(rows)
    by_count = sorted(range(len(rows)), key=lambda i: -rows[i].costs[0] if rows[i].costs else 0)
    found: list[Row] = []
    before = -1
    for index in sorted(by_count[:_MOST_ROWS]):
        if index - before > 1:
            found.append(Row("", f"… {index - before - 1} lines executed less often", "", ()))
        found.append(rows[index])
        before = index
    return found


def _as_json(row: Row, columns: Sequence[_Column]) -> dict[str, Any]:
    counts = {heading: number(row) for heading, number, _ in columns}
    why = {"main reason": row.why} if row.why else {}
    found = {heading: count for heading, count in counts.items() if count is not None}
    return {"line": row.number, "text": row.text, "source": row.at} | found | why


def _line(
    row: Row,
    columns: Sequence[_Column],
    heat: float,
    is_source: bool,
    said: Sequence[str],
    pictures: Mapping[str, str],
) -> str:
    name = f' id="{anchor(row.at)}"' if is_source and row.at else ""
    style = f' style="--heat:{heat:.2f}"' if heat >= 0.005 else ""
    at = f' data-at="{text(row.at)}" tabindex="0"' if row.at else ""
    picture = ""
    if is_source and row.at in pictures:
        picture = f' <a class="see" href="#{pictures[row.at]}" title="Show the access">◫</a>'
    cells = "".join(_cell(row, *column) for column in columns)
    bad = ' class="bad"' if said and is_source else ""
    line = (
        f"<tr{name}{at}{style}{bad}><td>{text(row.number)}</td>{cells}"
        f'<td class="text">{text(row.text[:_MOST_TEXT])}{picture}</td></tr>'
    )
    if said and is_source:
        notes = "<br>".join(map(text, said))
        line += f'<tr class="said"><td></td><td colspan="{len(columns) + 1}">{notes}</td></tr>'
    return line


def _cell(
    row: Row,
    heading: str,
    number: Callable[[Row], float | None],
    write: Callable[[float], str],
) -> str:
    value = number(row)
    if not value:
        return "<td></td>"
    tip = f"{value:.2f} %: {row.why}" if heading == STALLS else f"{value:,}"
    return f'<td title="{text(tip)}">{write(value)}</td>'


def _costs(counters: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(listing.COLUMNS[i][1](counters) for i in _SHOWN)


def _source(run: Run, findings: Sequence[Finding]) -> list[Row]:
    """Return the executed part of each source file, and the lines of findings."""
    counted = {at: _costs(counters) for at, counters in run.by_source_line().items() if at}
    places = [*counted, *(f.site.source for f in findings if f.site.source)]
    numbers: dict[str, list[int]] = {}
    for at in places:
        file, _, number = at.rpartition(":")
        numbers.setdefault(file, []).append(int(number))
    rows = []
    for file, lines in numbers.items():
        path = _local(file)
        if not path.is_file():
            continue
        texts = path.read_text(errors="replace").splitlines()
        rows.append(Row("", path.name, "", ()))
        for line in range(max(min(lines) - _AROUND, 1), min(max(lines) + _AROUND, len(texts)) + 1):
            at = f"{file}:{line}"
            known = at if at in counted or line in lines else ""
            rows.append(Row(str(line), texts[line - 1], known, counted.get(at, ())))
    return rows


def _local(file: str) -> Path:
    """Return the path of a source file; of this installation's, if another compiled the kernel."""
    path, package = Path(file), Path(gemmlab.__file__).parent
    if path.is_file() or package.name not in path.parts:
        return path
    last = len(path.parts) - 1 - path.parts[::-1].index(package.name)
    return package.joinpath(*path.parts[last + 1 :])


def _ptx(artifact: Artifact, run: Run) -> list[Row]:
    counted = {line: _costs(counters) for line, counters in run.by_ptx_line().items()}
    places = {i.line: i.source or "" for i in run.program.function.instructions}
    texts = artifact.ptx.splitlines()
    if not places:
        return []
    skipped = (".loc", "//", ".file")
    return [
        Row(
            str(number),
            texts[number - 1].strip(),
            places.get(number, ""),
            counted.get(number, ()),
            ptx_line=number,
        )
        for number in range(min(places), max(places) + 1)
        if texts[number - 1].strip() and not texts[number - 1].strip().startswith(skipped)
    ]


def _sass(artifact: Artifact, run: Run, stalls: Stalls | None) -> list[Row]:
    """Return the machine code; [] if it cannot be read or if the launch did not end."""
    try:
        machine = sass.analyse(artifact, run)
    except (CompileError, MissingDependencyError):
        return []
    places = {i.line: i.source or "" for i in run.program.function.instructions}
    assert artifact.cubin
    words = {
        one.address: one.word
        for one in read(tools.sass(artifact.cubin, artifact.entry, words=True)).instructions
    }
    shares, reasons = (stalls.by_address, stalls.main) if stalls else ({}, {})
    rows = []
    for block, executed in zip(machine.code.blocks, machine.counted.blocks, strict=True):
        for one in machine.code.inside(block):
            guard = f"@{one.guard} " if one.guard else ""
            shown = f"{guard}{one.opcode} {one.operands}".strip()
            waits = ", ".join(map(str, decode(words[one.address]).waits))
            rows.append(
                Row(
                    f"{one.address:04x}",
                    f"{shown}  [waits {waits}]" if waits else shown,
                    places.get(one.line, "") if one.line else "",
                    (executed.warps,),
                    shares.get(one.address, 0.0),
                    reasons.get(one.address, ""),
                    one.line or 0,
                )
            )
    return rows
