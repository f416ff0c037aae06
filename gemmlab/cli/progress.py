"""Progress of commands that run one rung after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmlab.core import status

if TYPE_CHECKING:
    from gemmlab.lab.records import Record


class Progress:
    """Print one line per rung to stderr, and keep the status line current."""

    def __init__(self, total: int) -> None:
        from gemmlab.report import tables

        self._total, self._count = total, 0
        self._console = tables.console(stderr=True)

    def say(self, rung: str, doing: str) -> None:
        status.say(f"{self._count + 1}/{self._total} {rung}: {doing}")

    def finish(self, record: Record, more: str = "") -> None:
        self._count += 1
        self._console.print(
            f"{self._count}/{self._total} {record.rung}: {record.verdict}{more}, "
            f"{record.host_s or 0:.1f} s",
        )
