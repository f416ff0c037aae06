"""Random PTX programs: terminating control flow, and address computations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random


class Flow:
    """Generates a random program of branches, loops, switches, exits, votes and shuffles."""

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
            # While lanes are converged they execute the same number of iterations.
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
        """A collective of the active lanes only; PTX leaves shuffles from inactive lanes
        undefined."""
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


SLOPES = [-8, -4, 0, 4, 8, 12]  # bytes between threads
SUMS = [
    "add",
    "sub",
    "add %u",
    "sub %u",
]  # of a register and a uniform value
OTHERS = ["from %u", "shift", "times", "both"]


@dataclass
class Linear:
    """A 64-bit register of Addresses: base * the buffer's address + slope * %tid.x + offset."""

    name: str
    base: int = 0
    slope: int = 0
    offset: int = 0


@dataclass
class Addresses:
    """Generates a random chain of 64-bit integer instructions that ends at an address in a
    buffer."""

    random: Random
    threads: int
    nbytes: int  # size of the buffer
    uniform: list[int]
    lines: list[str] = field(default_factory=list)
    names: itertools.count[int] = field(default_factory=itertools.count)

    def linear(self, base: int = 0, slope: int = 0, offset: int = 0) -> Linear:
        found = Linear(f"%a{next(self.names)}", base, slope, offset)
        self.lines.append(f".reg .b64 {found.name};")
        return found

    def text(self) -> str:
        """Return the instructions generated since the last call."""
        lines, self.lines = self.lines, []
        return "\n".join(lines)

    def sign(self) -> str:
        return self.random.choice("su")

    def number(self) -> int:
        r = self.random
        return r.choice([r.randint(-600, 600), 4 << r.randrange(60), -(4 << r.randrange(60))])

    def start(self) -> Linear:
        """A multiple of the thread's index."""
        factor, plus = self.random.choice(SLOPES), self.number()
        kind = self.random.choice(["s", "u"]) if factor >= 0 else "s"
        if self.random.random() < 0.5:
            x = self.linear(0, factor)
            self.lines.append(f"mul.wide.{kind}32 {x.name}, %tid, {factor};")
        elif self.random.random() < 0.5:
            x = self.linear(1, factor)
            self.lines.append(f"mad.wide.{kind}32 {x.name}, %tid, {factor}, %base;")
        else:
            x = self.linear(0, factor, plus)
            self.lines.append(f"mad.wide.{kind}32 {x.name}, %tid, {factor}, {plus};")
        return x

    def change(self, x: Linear, kinds: Sequence[str]) -> Linear:
        """Append one instruction."""
        number, k = self.number(), self.random.randrange(4)
        match self.random.choice(kinds):
            case "add":
                y = self.linear(x.base, x.slope, x.offset + number)
                text = f"add.{self.sign()}64 {y.name}, {x.name}, {number};"
            case "sub":
                y = self.linear(x.base, x.slope, x.offset - number)
                text = f"sub.{self.sign()}64 {y.name}, {x.name}, {number};"
            case "add %u":
                y = self.linear(x.base, x.slope, x.offset + self.uniform[k])
                text = f"add.{self.sign()}64 {y.name}, %u{k}, {x.name};"
            case "sub %u":
                y = self.linear(x.base, x.slope, x.offset - self.uniform[k])
                text = f"sub.{self.sign()}64 {y.name}, {x.name}, %u{k};"
            case "from %u":
                y = self.linear(-x.base, -x.slope, self.uniform[k] - x.offset)
                text = f"sub.{self.sign()}64 {y.name}, %u{k}, {x.name};"
            case "shift":
                y = self.linear(x.base << k, x.slope << k, x.offset << k)
                text = f"shl.b64 {y.name}, {x.name}, {k};"
            case "times":
                y = self.linear(x.base * -3, x.slope * -3, x.offset * -3)
                text = f"mul.lo.{self.sign()}64 {y.name}, {x.name}, -3;"
            case _:
                other = self.start()
                bases, slopes = x.base + 5 * other.base, x.slope + 5 * other.slope
                y = self.linear(bases, slopes, x.offset + 5 * other.offset)
                text = f"mad.lo.{self.sign()}64 {y.name}, {other.name}, 5, {x.name};"
        self.lines.append(text)
        return y

    def address(self) -> tuple[str, int, int]:
        """Return a register and an offset to add to it, and the bytes of the buffer they address:
        thread 0's position and the stride between threads."""
        x, kinds = self.start(), self.random.choice([SUMS, [*SUMS, *OTHERS]])
        for _ in range(self.random.randint(1, 6)):
            x = self.change(x, kinds)
        slope = x.slope if x.slope in SLOPES else self.random.choice(SLOPES)
        if x.base != 1:
            y = self.linear(1, x.slope, x.offset)
            self.lines.append(f"mad.lo.{self.sign()}64 {y.name}, %base, {1 - x.base}, {x.name};")
            x = y
        if x.slope != slope:
            y = self.linear(1, slope, x.offset)
            self.lines.append(f".reg .b64 {y.name}t; cvt.{self.sign()}64.u32 {y.name}t, %tid;")
            factor = f"{y.name}t, {slope - x.slope}"
            self.lines.append(f"mad.lo.{self.sign()}64 {y.name}, {factor}, {x.name};")
            x = y
        extent = abs(slope) * (self.threads - 1)
        first = 4 * self.random.randrange((self.nbytes - extent) // 4) + (
            extent if slope < 0 else 0
        )
        displacement = 4 * self.random.randint(-500, 500)
        number = (first - displacement - x.offset + (1 << 63)) % (1 << 64) - (1 << 63)
        y = self.linear(1, slope, first - displacement)
        self.lines.append(f"add.{self.sign()}64 {y.name}, {x.name}, {number};")
        return f"{y.name}+{displacement}", first, slope
