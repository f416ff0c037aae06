"""Emits Python for the PTX instructions that are not in isa.py's table, with one module per family.
`instructions` handles the basic ones and holds what the families share."""

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
