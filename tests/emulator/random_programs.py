"""PTX programs that nobody wrote: random control flow that ends."""

from __future__ import annotations

import itertools
from random import Random


class Flow:
    """Writes a random program: branches, loops, switches, exits, votes and shuffles."""

    def __init__(self, random: Random) -> None:
        self.random, self.names = random, itertools.count()

    def value(self) -> str:
        return f"%x{self.random.randrange(4)}"

    def condition(self) -> str:
        bit = 1 << self.random.randrange(4)
        compare = self.random.choice(["eq", "ne", "gt"])
        return f"and.b32 %t, {self.value()}, {bit}; setp.{compare}.u32 %p1, %t, 0;"

    def lines(self, depth: int) -> list[str]:
        kinds = ["compute", "compute", "branch", "loop", "skip", "switch", "exit", "collective"]
        found = []
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.choice(kinds if depth else kinds[:2])
            found += getattr(self, kind)(depth - 1)
        return found

    def compute(self, depth: int) -> list[str]:
        guard = self.random.choice(["", "@%p1 "])
        return [f"{guard}mad.lo.u32 {self.value()}, {self.value()}, 5, {self.value()};"]

    def branch(self, depth: int) -> list[str]:
        n = next(self.names)
        return [
            *(self.condition(), f"@%p1 bra ELSE{n};", *self.lines(depth), f"bra.uni END{n};"),
            *(f"ELSE{n}:", *self.lines(depth), f"END{n}:"),
        ]

    def loop(self, depth: int) -> list[str]:
        n = next(self.names)
        return [
            f".reg .u32 %i{n}, %n{n}; and.b32 %i{n}, {self.value()}, 3; mov.u32 %n{n}, 0;",
            *(f"LOOP{n}:", *self.lines(depth), f"add.u32 %n{n}, %n{n}, 1;"),
            f"setp.lt.s32 %p2, %n{n}, %i{n}; @%p2 bra LOOP{n};",
            # The number of turns is the same for all lanes while they are together.
            self.random.choice(["", f"add.u32 {self.value()}, {self.value()}, %n{n};"]),
        ]

    def skip(self, depth: int) -> list[str]:
        """A jump out of the middle of a branch."""
        n = next(self.names)
        inside = [*self.lines(depth), self.condition(), f"@!%p1 bra FAR{n};", *self.lines(depth)]
        return [self.condition(), f"@%p1 bra NEAR{n};", *inside, f"NEAR{n}:", f"FAR{n}:"]

    def switch(self, depth: int) -> list[str]:
        n = next(self.names)
        cases = [f"C{k}_{n}" for k in range(3)]
        found = [f"T{n}: .branchtargets {', '.join(cases)};", f"rem.u32 %t, {self.value()}, 3;"]
        found.append(f"brx.idx %t, T{n};")
        for label in cases:
            found += [f"{label}:", *self.lines(depth), f"bra.uni END{n};"]
        return [*found, f"END{n}:"]

    def exit(self, depth: int) -> list[str]:
        return ["and.b32 %t, %x0, 31; setp.eq.u32 %p1, %t, 7;", "@%p1 bra STORE;"]

    def collective(self, depth: int) -> list[str]:
        """Of the lanes that are here; what a shuffle finds in others PTX leaves open."""
        to, one = self.value(), self.value()
        source = self.random.choice(["xor.b32 %s, %l, 1;", f"and.b32 %s, {self.value()}, 31;"])
        shuffle = (
            f"{source} shfl.sync.idx.b32 %t, {one}, %s, 31, %m; shr.u32 %s, %m, %s;"
            f"and.b32 %s, %s, 1; setp.eq.u32 %p2, %s, 1; @%p2 mov.u32 {to}, %t;"
        )
        others = [
            f"vote.sync.ballot.b32 {to}, %p1, %m;",
            f"redux.sync.add.u32 {to}, {one}, %m;",
            f"match.any.sync.b32 {to}, {one}, %m;",
        ]
        return ["activemask.b32 %m;", self.random.choice([shuffle, *others])]
