"""Python for PTX instructions that isa.py has no row for: a module for each family of instructions,
and the table of them all. `instructions` has the plain ones, and what the families share."""

from gemmlab.emulator.translation.emit import (
    bulk,
    calls,
    clusters,
    collectives,
    copies,
    floats,
    fragments,
    instructions,
    integers,
    matrices,
    mbarriers,
    wgmma,
)

EMITTERS = instructions.EMITTERS | collectives.EMITTERS | floats.EMITTERS
EMITTERS |= integers.EMITTERS | calls.EMITTERS
EMITTERS |= copies.EMITTERS | bulk.EMITTERS | mbarriers.EMITTERS | clusters.EMITTERS
EMITTERS |= matrices.EMITTERS | fragments.EMITTERS | wgmma.EMITTERS
