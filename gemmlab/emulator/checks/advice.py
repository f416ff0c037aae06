"""Messages of findings: which thread accesses which element at which line, and the repair."""

from __future__ import annotations

from typing import NamedTuple

from gemmlab.errors import IllegalAccess, Site
from gemmlab.ptx.ir import Instruction
from gemmlab.ptx.opcodes import ATOMICS, LOADS

# What a record is compared for -> what the later and the earlier access do.
VERBS = {
    "read after write": ("reads", "writes"),
    "write after read": ("writes", "reads"),
    "write after write": ("writes", "writes"),
    "use after write": ("uses", "writes"),
}
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
SHUFFLES = {"idx": "", "up": "up_", "down": "down_", "bfly": "xor_"}
# Threads that must be ordered -> the barrier in CUDA C++, in PTX, and in words.
BARRIERS = {
    "warp": ("`__syncwarp()`", "`bar.warp.sync`", "a barrier of the warp"),
    "block": ("`__syncthreads()`", "`bar.sync 0`", "a barrier of the block"),
    "cluster": ("`cluster.sync()`", "`barrier.cluster`", "a barrier of the cluster"),
}


# PTX opcode, without its type -> the function of CUDA C++.
FUNCTIONS = {
    **{f"shfl.sync.{mode}": f"__shfl_{name}sync" for mode, name in SHUFFLES.items()},
    **{f"vote.sync.{mode}": f"__{mode}_sync" for mode in ("all", "any", "ballot")},
    **{f"match.{mode}.sync": f"__match_{mode}_sync" for mode in ("all", "any")},
    **{f"redux.sync.{mode}": f"__reduce_{mode}_sync" for mode in REDUCTIONS},
    "bar.warp.sync": "__syncwarp",
}
# Messages by fields: {by}, the thread; {place}, the element; {here}, its line; {other} and {there},
# the earlier access.
UNWRITTEN_READ = "{by} reads {place} at {here}, which was never written: initialize it first"
UNWRITTEN_UPDATE = "{by} updates {place} at {here}, which was never written: initialize it first"
LANES_DIFFER = (
    "threads of one warp write different values to {place} at {here}: let one thread write, or "
    "give each thread its own element"
)
NARROW_SCOPE = (
    "{by} updates {place} at {here} atomically for its block only, {other} updates it at {there}: "
    "use an atomic operation of scope gpu"
)
STALE_READ = (
    "{by} reads {place} at {here} through the read-only cache, {other} writes it at {there}: read "
    "it without `__ldg` and `const __restrict__`"
)
NO_PROXY_FENCE = (
    "{other} writes {place} at {there}, an asynchronous operation %s it at {here}, no proxy fence "
    "between: put `fence.proxy.async` after {there}"
)


class Access(NamedTuple):
    """One of two conflicting accesses."""

    by: str  # "thread 3", "block (1, 0, 0)"
    site: Site


def line(site: Site) -> str:
    """The source line, if known, or the PTX line."""
    number = site.source.rpartition(":")[2] if site.source else ""
    return f"line {number}" if number else f"PTX line {site.ptx_line}"


def barrier(scope: str, site: Site) -> str:
    """The barrier among the threads of a warp, block or cluster, in the language of the kernel."""
    cuda, ptx, words = BARRIERS[scope]
    if site.source is None:
        return ptx
    return words if site.source.rpartition(":")[0].endswith(".py") else cuda


def function(i: Instruction) -> str:
    """The name of a warp's instruction in the language of the kernel."""
    opcode = ".".join(i.opcode)
    is_cuda = i.source is not None and not i.source.rpartition(":")[0].endswith(".py")
    names = (name for ptx, name in FUNCTIONS.items() if f"{opcode}.".startswith(f"{ptx}."))
    return next(names, opcode) if is_cuda else opcode


def race(what: str, place: str, later: Access, earlier: Access, scope: str) -> str:
    """The message of a race. what: a key of VERBS. place: the element. scope: "warp", "block" or
    "cluster", the smallest that contains both threads, or "grid"."""
    now, before = VERBS[what]
    here, there = line(later.site), line(earlier.site)
    head = f"{later.by} {now} {place} at {here}, {earlier.by} {before} it at {there}"
    if scope == "grid":
        repair = (
            "order them by `__threadfence()` and an atomic flag, or use one kernel for each access"
        )
        if now == before:
            repair = "use an atomic operation, or give each block its own element"
        return f"{head}, nothing orders blocks: {repair}"
    needed = barrier(scope, later.site)
    if here != there:
        return f"{head}, no barrier between: put {needed} after {there}"
    if now == before:
        return f"{head}: give each thread its own element, or use an atomic operation"
    return f"{head}: use an atomic operation, or put {needed} between the read and the write"


def unfinished(what: str, owner: str = " of {other}") -> str:
    """The message of an access that conflicts with an asynchronous operation, by fields. what: a
    key of VERBS. owner: of the operation."""
    now, before = VERBS[what]
    does = {"reads": "reading", "writes": "writing"}[before]
    return (
        f"{{by}} {now} {{place}} at {{here}}, the asynchronous operation{owner}, started at "
        f"{{there}}, may still be {does} it: wait for its completion before {{here}}"
    )


def fill(text: str, place: str, later: Access, earlier: Access | None) -> str:
    """A message with its fields filled in."""
    other, there = ("", "") if earlier is None else (earlier.by, line(earlier.site))
    here = line(later.site)
    return text.format(by=later.by, place=place, here=here, other=other, there=there)


def illegal(thread: int, i: Instruction, access: IllegalAccess, is_aligned: bool) -> str:
    """The message of an access that is out of bounds, or misaligned."""
    verb = "updates" if i.root in ATOMICS else "reads" if i.root in LOADS else "writes"
    verb = "copies" if i.root == "cp" else verb
    place = f" {access.place}" if access.place else ""
    head = f"thread {thread} {verb}{place} at {line(i.site)}, {access.why}"
    if access.was_freed:
        return f"{head}: free it after the last access"
    if is_aligned:
        return f"{head}: guard the access, or allocate more"
    return f"{head}: access single elements, or align the index"
