"""Source, PTX and machine code side by side, with the counts of each line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from gemmlab.report import listing
from gemmlab.report.html.page import Link, Part, text

_AROUND = 4  # lines of a source file shown before the first and after the last executed line
_SHOWN = (0, 3, 5, 6)  # of listing.COLUMNS: instructions, global sectors, wavefronts, conflicts
STALLS = "stall cycles"  # column of the machine code
_MOST_ROWS = 2500  # of a pane
_MOST_TEXT = 160  # characters of a line


@dataclass(frozen=True)
class Row:
    """One line of one pane. `at` is the source line "file:12" that it belongs to, or ""."""

    number: str
    text: str
    at: str
    costs: tuple[int, ...]


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
) -> Part:
    """Return the code of a kernel with what a launch executed of it.

    pictures: source line → id of the drawing of its access.
    """
    shown = {
        "Source": _source(run, findings),
        "PTX": _ptx(artifact, run),
        "SASS": _sass(artifact, run),
    }
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
        headings = [headings[0], STALLS] if name == "SASS" else headings
        used = [
            i for i in range(len(headings)) if any(i < len(r.costs) and r.costs[i] for r in rows)
        ]
        most = max((row.costs[0] for row in rows if row.costs), default=0)
        names = "".join(f"<th>{text(headings[i])}</th>" for i in used)
        head = f'<tr><th></th>{names}<th class="text">{name}</th></tr>'
        lines = [
            _line(row, used, most, name == "Source", said.get(row.at, []), pictures or {})
            for row in rows
        ]
        body.append(
            f'<div class="pane" data-pane="{name}"><div class="rows"><table>'
            f"<thead>{head}</thead><tbody>{''.join(lines)}</tbody></table></div></div>"
        )
        data[name] = [_as_json(row, headings, used) for row in rows]
    caption = (
        "Select a line to see what the compiler made of it, and where it came from. The shade is "
        "the number of instructions that warps executed; counts are of the emulated launch. Stall "
        "cycles: how long ptxas lets a warp wait after an instruction, times its executions. "
        "[waits 0] marks one that first waits for results, by scoreboard."
    )
    return Part("code", "", caption, data, f'<div class="panes">{"".join(body)}</div>')


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


def _as_json(row: Row, headings: Sequence[str], used: Sequence[int]) -> dict[str, Any]:
    counts = {headings[i]: row.costs[i] for i in used if i < len(row.costs)}
    return {"line": row.number, "text": row.text, "source": row.at} | counts


def _line(
    row: Row,
    used: Sequence[int],
    most: int,
    is_source: bool,
    said: Sequence[str],
    pictures: Mapping[str, str],
) -> str:
    heat = row.costs[0] / most if row.costs and most else 0
    name = f' id="{anchor(row.at)}"' if is_source and row.at else ""
    style = f' style="--heat:{heat:.2f}"' if heat >= 0.005 else ""
    at = f' data-at="{text(row.at)}" tabindex="0"' if row.at else ""
    picture = ""
    if is_source and row.at in pictures:
        picture = f' <a class="see" href="#{pictures[row.at]}" title="Show the access">◫</a>'
    cells = "".join(
        f'<td title="{row.costs[i]:,}">{scaled(row.costs[i])}</td>'
        if i < len(row.costs) and row.costs[i]
        else "<td></td>"
        for i in used
    )
    bad = ' class="bad"' if said and is_source else ""
    line = (
        f"<tr{name}{at}{style}{bad}><td>{text(row.number)}</td>{cells}"
        f'<td class="text">{text(row.text[:_MOST_TEXT])}{picture}</td></tr>'
    )
    if said and is_source:
        notes = "<br>".join(map(text, said))
        line += f'<tr class="said"><td></td><td colspan="{len(used) + 1}">{notes}</td></tr>'
    return line


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
        Row(str(number), texts[number - 1].strip(), places.get(number, ""), counted.get(number, ()))
        for number in range(min(places), max(places) + 1)
        if texts[number - 1].strip() and not texts[number - 1].strip().startswith(skipped)
    ]


def _sass(artifact: Artifact, run: Run) -> list[Row]:
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
    rows = []
    for block, executed in zip(machine.code.blocks, machine.counted.blocks, strict=True):
        for one in machine.code.inside(block):
            guard = f"@{one.guard} " if one.guard else ""
            at = places.get(one.line, "") if one.line else ""
            shown = f"{guard}{one.opcode} {one.operands}".strip()
            control = decode(words[one.address])
            waits = ", ".join(map(str, control.waits))
            note = f"  [waits {waits}]" if waits else ""
            costs = (executed.warps, control.stall * executed.warps)
            rows.append(Row(f"{one.address:04x}", shown + note, at, costs))
    return rows
