"""Which line of the source an instruction belongs to, where functions are inlined."""

from __future__ import annotations

Location = tuple[int, int, int]  # file, line, column


class Locations:
    """The places of one PTX text that `.loc` names."""

    def __init__(self) -> None:
        self.calls: dict[Location, Location] = {}  # from what is inlined to where it is called

    def line(self, place: Location, caller: Location | None) -> tuple[int, int]:
        """File and line of what follows. Of what is inlined from another file, such as a header, it
        is the line of the call."""
        if caller is not None and place not in self.callers(caller):  # not a template in itself
            self.calls[place] = caller
        chain = self.callers(place)
        return next(x[:2] for x in chain if x[0] == chain[-1][0])

    def callers(self, place: Location) -> list[Location]:
        """A place, where what it is in is called, where that is, and so on."""
        chain = [place]
        while chain[-1] in self.calls:
            chain.append(self.calls[chain[-1]])
        return chain
