"""Maps `.loc` directives to source lines, through inlined calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemmlab.ptx.ir import Instruction

# The CuTe DSL gives loops that it has changed the location of the host function that launches the
# kernel. Such instructions keep the previous line.
_LAUNCHER = "/gemmlab/compile/cute_launch.py"

Location = tuple[int, int, int]  # file, line, column


class Locations:
    """The `.loc` locations of one PTX text."""

    def __init__(self) -> None:
        self.calls: dict[Location, Location] = {}  # inlined location -> location of the call

    def line(self, place: Location, caller: Location | None) -> tuple[int, int]:
        """File and line for the instructions after a `.loc`. Code inlined from another file, such
        as a header, maps to the line of the call. caller: of `inlined_at`."""
        if caller is not None and place not in self.callers(caller):  # avoid cycles
            self.calls[place] = caller
        chain = self.callers(place)
        return next(x[:2] for x in chain if x[0] == chain[-1][0])

    def callers(self, place: Location) -> list[Location]:
        """A location, the location of the call it is inlined into, and so on outward."""
        chain = [place]
        while chain[-1] in self.calls:
            chain.append(self.calls[chain[-1]])
        return chain


def name_sources(instructions: Iterable[Instruction], files: Mapping[int, str]) -> None:
    """Replace the numbers of files in the sources of a function's instructions by their names."""
    before: str | None = None
    for i in instructions:
        if i.source and i.source.split(":")[0].isdigit():
            number, line = i.source.split(":")
            name = files.get(int(number), f"file {number}")
            i.source = before if name.endswith(_LAUNCHER) else f"{name}:{line}"
        before = i.source
