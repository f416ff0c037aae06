"""A terminal page for an explanation: sections of facts, pictures and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import PurePath

from rich.console import Console, RenderableType
from rich.text import Text

from gemmlab.core.figures import digits, scaled, seconds, times
from gemmlab.hardware import limits
from gemmlab.hardware.specs import architecture
from gemmlab.hardware.traffic import accesses_per_result
from gemmlab.hardware.waves import Waves
from gemmlab.lab.explain.counted import Loop
from gemmlab.lab.explain.explanation import STEPS, Explanation
from gemmlab.lab.explain.patterns import Pattern
from gemmlab.lab.explain.readings import Reading
from gemmlab.lab.metrics import MATRIX_PRODUCTS
from gemmlab.report import explanation_pictures, tables

_ROOFLINE_WIDTH = 64
_SVG_WIDTH = 118
TAUGHT = ((1, 1), (4, 1), (2, 2), (8, 1), (8, 8))  # tiles of C per thread, TM×TN
_LEGEND = (
    "A character is a word of 4 bytes: the lane that accesses it, 0 to 9 and a to v (10 to 31), * "
    "for several, · for none. [ ] is a sector of global memory, a line of shared memory one "
    "wavefront."
)
_LEAST_SHARE, _MOST_SHARES = 0.01, 5  # of the reasons why warps wait
_PLAIN_FRACTION = 1024  # largest numerator·denominator of a fraction worth showing


def show(explanation: Explanation, out: Console) -> None:
    """Print every section that has content."""
    e = explanation
    out.print(Text(f"{e.rung}: {e.change}" if e.change else e.rung, style="bold"))
    gpu = e.gpu
    out.print(
        f"{case(e)}, {e.arch}; {gpu.name}: "
        f"{gpu.fp32_tflops:.3g} FP32 TFLOPS, {gpu.bandwidth_gbs:,.0f} GB/s, {gpu.sms} SMs, "
        f"{_l2(e)} of L2 ({gpu.source})",
    )
    for note in e.notes:
        out.print(note, style="yellow")
    for title, parts in _sections(e, out.width):
        out.print()
        out.print(Text(title, style="bold underline"))
        for part in parts:
            out.print(part)


def case(e: Explanation) -> str:
    """Return the problem, sizes and layout that an explanation is of."""
    if e.problem:
        return f"{e.problem} {times(e.shape)}, {e.layout} layout"
    return ", ".join(f"{name} = {size:,}" for name, size in e.shape.items()) or "no sizes"


def as_svg(explanation: Explanation) -> str:
    """Return the page as SVG text."""
    title = f"gemmlab explain {explanation.rung}"
    return tables.picture(lambda out: show(explanation, out), _SVG_WIDTH, title, "explain")


def _sections(e: Explanation, width: int) -> Iterator[tuple[str, Iterable[RenderableType]]]:
    yield "Work", [tables.facts(dict(work_facts(e)))]
    yield "Roofline", _roofline(e, width)
    yield "Launch and occupancy", [tables.facts(dict(launch_facts(e)))]
    yield "Threads and warps", _warps(e)
    if e.counted:
        yield "Memory accesses of warp 0 in the first block", _patterns(e, width)
    if e.rows:
        assert e.counted
        yield f"Model and count, {times(e.counted.shape)}", _rows(e)
    if e.counted:
        yield "Caches and latency", _caches(e)
    if e.advice:
        listed = (f"{number}. {told}" for number, told in enumerate(e.advice, 1))
        yield "What to improve first", [Text(line) for line in listed]


def work_facts(e: Explanation) -> Iterator[tuple[str, str]]:
    work, traffic = e.work, e.work.traffic
    flops = f"{traffic.flops.symbols} = " if traffic and work.flops else ""
    yield "FLOPs", f"{flops}{scaled(work.flops)}" if work.flops else "none"
    yield "minimum traffic", f"{scaled(work.least_bytes)}B: inputs read once, outputs written once"
    if traffic is None:
        yield "requested traffic", "no model of this kernel"
        return
    asked = [
        f"{field.split('_')[1]} {quantity.symbols} = {scaled(quantity.value)}"
        for field in ("global_loads", "global_stores", "global_atomics")
        if (quantity := getattr(traffic, field)) and quantity.value
    ]
    if traffic.copied.value:
        symbols, value = traffic.copied.symbols, traffic.copied.value
        asked.append(f"copy engine {symbols} = {scaled(value)}")
    total = f": {scaled(traffic.global_bytes)}B" if traffic.global_bytes is not None else ""
    yield "requested traffic", f"{', '.join(asked)} elements{total}" if asked else "none"
    if work.threads:
        per_thread = f"{_shares(e, work.per_thread)} per thread"
        per_result = _shares(e, work.per_result)
        yield "loads", per_thread + (per_result and f"; {per_result} per result")
    if (tile := traffic.thread_tile) is not None:
        yield f"accesses, K = {STEPS}", _accesses(tile)


def _accesses(own: tuple[int, int]) -> str:
    """Accesses per result beside those of the tiles that teaching material compares."""

    def count(tile: tuple[int, int]) -> str:
        return f"{accesses_per_result(tile, STEPS):.3g}"

    others = ", ".join(f"{tm}×{tn} {count((tm, tn))}" for tm, tn in TAUGHT if (tm, tn) != own)
    tm, tn = own
    return (
        f"K·(1/TM + 1/TN) + 1 = {STEPS}·(1/{tm} + 1/{tn}) + 1 = {count(own)} per result; {others}"
    )


def _shares(e: Explanation, share: Callable[[str], Fraction | None]) -> str:
    shares = []
    for space in ("global", "shared"):
        value = share(f"{space}_loads")
        shares.append("" if value is None else f"{_in_k(e, value)} {space}")
    return " and ".join(filter(None, shares))


def _in_k(e: Explanation, value: Fraction) -> str:
    """Format a value, for a matrix product also as a simple fraction of K: "64 (K/8)"."""
    part = value / e.shape["k"] if e.shape.get("k") else Fraction(0)
    if not part or part.numerator * part.denominator > _PLAIN_FRACTION:
        return _exact(value)
    above = "K" if part.numerator == 1 else f"{part.numerator}·K"
    below = "" if part.denominator == 1 else f"/{part.denominator}"
    return f"{_exact(value)} ({above}{below})"


def _exact(value: Fraction) -> str:
    """Format with four digits; from 1000 on, as a whole number with all its digits."""
    return f"{float(value):.4g}" if value < 1000 else f"{float(value):,.0f}"


def _roofline(e: Explanation, width: int) -> Iterator[RenderableType]:
    roof = e.roof
    if not e.work.flops:
        yield f"No FLOPs. {_bound(e)}"
        return
    ceiling = e.caches.wavefront_tflops if e.caches else None
    ceiling = ceiling and ceiling * e.share
    columns = min(_ROOFLINE_WIDTH, width - 9)
    measured = [r for r in e.measured if (r.rung, r.shape) == (e.rung, e.shape)]
    points = [(mark, p.intensity, p.tflops) for mark, p in zip("abc", e.points, strict=False)]
    points += [("m", r.intensity, r.tflops) for r in measured]
    yield from map(Text, explanation_pictures.roofline_lines(roof, points, ceiling, columns))
    for mark, point in zip("abc", e.points, strict=False):
        yield (
            f"{mark}  {point.name}, {digits(point.intensity)} FLOP/byte: {point.tflops:.3g} TFLOPS"
            f", limited by {point.bound}, {point.condition}"
        )
    for r in measured:
        yield (
            f"m  measured on {r.device}, {digits(r.intensity)} FLOP/byte of device memory: "
            f"{r.tflops:.3g} TFLOPS, {r.share:.1%} of the {r.peak.name}"
        )
    if ceiling and ceiling < e.peak_tflops:
        yield (
            f"╌  L1 and shared memory, 1 wavefront per clock per SM{_used(e)}: "
            f"at most {ceiling:.3g} TFLOPS"
        )
    yield f"Ridge at {roof.ridge:.3g} FLOP/byte. {_bound(e)}"
    if e.peak_tflops > e.gpu.fp32_tflops:
        yield f"This roof is above the FP32 peak of {e.gpu.fp32_tflops:.3g} TFLOPS."


def _bound(e: Explanation) -> str:
    """Return the minimum time of a launch, and the time of device memory if L2 holds no data."""
    least, memory = e.least_time_s, e.memory_time_s
    by = "the bandwidth of device memory"
    if least == e.arithmetic_time_s:
        by = f"the {e.peak}"
        if e.share < 1:
            by += f" of the part{_used(e)}, {e.usable_tflops:.3g} TFLOPS"
    bound = f"Minimum time of a launch: {seconds(least)}, limited by {by}."
    if memory <= e.arithmetic_time_s:
        return bound if memory else "No data is moved."
    moved = (
        f"Moving {scaled(e.work.least_bytes)}B to and from device memory takes {seconds(memory)}"
    )
    if least:
        return f"{bound} {moved}, less if L2 ({_l2(e)}) already holds some of the data."
    return f"{moved}, the minimum time of a launch unless L2 ({_l2(e)}) already holds the data."


def _used(e: Explanation) -> str:
    return " that the grid uses" if e.share < 1 else ""


def _l2(e: Explanation) -> str:
    return f"{e.gpu.l2_mb:g} MiB"


def launch_facts(e: Explanation) -> Iterator[tuple[str, str]]:
    (grid, block, dynamic), sm = e.geometry, architecture(e.gpu.arch)
    yield (
        "launch",
        f"{_dims(grid)} blocks (≤ {_dims(limits.GRID_DIMS)}) of {_dims(block)} = "
        f"{math.prod(block):,} threads (≤ {limits.THREADS_PER_BLOCK:,})",
    )
    if e.resources:
        taken = e.resources
        yield (
            "resources",
            f"{taken.registers} registers per thread, {taken.spill_bytes} bytes spilled; shared "
            f"memory {taken.static_smem_bytes:,} bytes static (≤ {limits.STATIC_SMEM:,}), "
            f"{dynamic:,} dynamic (sum ≤ {sm.smem_per_block:,})",
        )
    if e.occupancy:
        found = e.occupancy
        room = ", ".join(f"{name} {blocks:,}" for name, blocks in found.limits.items())
        yield (
            "occupancy",
            f"{found.fraction:.0%}: {found.warps_per_sm} of {sm.warps_per_sm} warps, "
            f"{_some(found.blocks_per_sm, 'block')}; limited by {found.limiter} (blocks by limit: "
            f"{room})",
        )
    if e.waves and e.waves.blocks:
        yield "grid on the GPU", _spread(e.waves)
    if e.refusal:
        yield "cannot run", e.refusal


def _spread(w: Waves) -> str:
    spread = f"{_some(w.blocks, 'block')}, {w.waves:.3g} waves of {w.sms}×{w.per_sm}"
    share = f"{100 * w.share:.3g}% of the peak"
    if w.idle_sms:
        return f"{spread}; {w.idle_sms} SMs idle: at most {share}"
    if not w.even:
        return f"{spread}; no SM idle"
    return (
        f"{spread}; {w.most_per_sm:,} or more on one SM, {w.blocks / w.sms:.3g} on average: "
        f"at most {share}"
    )


def _dims(counts: Iterable[int]) -> str:
    return "×".join(f"{count:,}" for count in counts)


def _span(numbers: Iterable[int]) -> str:
    ordered = sorted(set(numbers))
    return str(ordered[0]) if len(ordered) == 1 else f"{ordered[0]}–{ordered[-1]}"


def _warps(e: Explanation) -> Iterator[RenderableType]:
    x, y, z = e.geometry.block
    threads = x * y * z
    first = [(i % x, i // x % y, i // (x * y)) for i in range(min(32, threads))]
    by_axis = zip("xyz", e.geometry.block, zip(*first, strict=True), strict=True)
    spans = ", ".join(f"{axis} {_span(values)}" for axis, size, values in by_axis if size > 1)
    yield (
        f"Thread id = x{f' + {x}·y' if y > 1 else ''}{f' + {x * y}·z' if z > 1 else ''}; "
        f"{_some(-(-threads // 32), 'warp')} of 32 per block. Warp 0: {spans or 'x 0'}."
    )
    if e.counted is None:
        return
    divergent = e.counted.counters["ptx_branch_divergent.sum"]
    where = " in all launches" if e.counted.launches > 1 else ""
    yield (
        f"Divergent branches{where}: {divergent:,}. The paths of a divergent warp run one after "
        "the other."
        if divergent
        else "No branch diverges."
    )
    if e.counted.owners:
        owners = e.counted.owners
        rows, columns = explanation_pictures.tile_steps(owners)
        each = (
            "element"
            if rows * columns == 1
            else f"{rows}×{columns} elements (the upper left one's warp)"
        )
        yield (
            f"The warp (0 to v) that writes each of the first block's {len(owners)}×"
            f"{len(owners[0])} results; one character per {each}:"
        )
        yield from (Text(f"  {line}") for line in explanation_pictures.tile_lines(owners))


def _patterns(e: Explanation, width: int) -> Iterator[RenderableType]:
    assert e.counted
    for pattern in e.counted.patterns:
        yield headline(pattern)
        lines = explanation_pictures.picture(pattern, width - 2)
        yield from (Text(f"  {line}", style="cyan") for line in lines)
    if e.counted.patterns:
        yield _LEGEND


def headline(p: Pattern) -> str:
    where = f"{p.space} {p.operation}" + (f" {p.target}" if p.target else "")
    unit, cost = "wavefront", f"minimum {p.least}"
    if p.space == "global":
        unit, cost = "sector", f"{p.bytes_used} of {p.bytes_moved} bytes used"
    many = f"{p.instructions}× " if p.instructions > 1 else ""
    lanes = f"{_some(p.lanes, 'lane')} of {_some(p.width, 'byte')}"
    return (
        f"{many}{where}, {lanes} ({PurePath(p.source).name}): {_some(p.cost, unit)} ({cost}); "
        f"{p.sentence}"
    )


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _rows(e: Explanation) -> Iterator[RenderableType]:
    cells = [
        (
            row.name,
            row.formula or "no model",
            "–" if row.model is None else scaled(row.model),
            "–" if row.counted is None else scaled(row.counted),
            "" if row.difference is None else _percent(row.difference),
        )
        for row in e.rows
    ]
    yield tables.plain_table(("", "formula", "model", "counted", "difference"), cells)
    for row in e.rows:
        if row.reason:
            yield f"{row.name}: {row.reason}."


def _caches(e: Explanation) -> Iterator[RenderableType]:
    counted, caches = e.counted, e.caches
    assert counted and caches
    at = f"At {times(counted.shape)}, lanes" if counted.shape else "Lanes"
    bulk = f" Bulk copies read {scaled(caches.bulk)}B." if caches.bulk else ""
    yield (
        f"{at} request loads of {scaled(caches.asked)}B, in "
        f"{scaled(caches.sectors)}B of L1 sectors.{bulk} Inputs and outputs are "
        f"{scaled(caches.least)}B. {_device_memory(e)}"
    )
    most = caches.wavefront_tflops
    ceiling = f": at most {digits(most)} TFLOPS" if most and e.work.flops else ""
    yield (
        f"{scaled(caches.wavefronts)} wavefronts of L1 and shared memory, 1 per clock per SM, "
        f"take at least {seconds(caches.wavefront_s)} on all {e.gpu.sms} SMs{ceiling}."
    )
    if caches.bulk or counted.counters.get(MATRIX_PRODUCTS):
        yield "What bulk copies write to shared memory and wgmma reads from it is not among them."
    if counted.loop:
        yield _loop(counted.loop)
    for device in dict.fromkeys(r.device for r in e.measured):
        yield _measured(device, [r for r in e.measured if r.device == device])
    if e.measured and counted.launches > 1:
        yield f"The reading of {e.rung} sums over its launches; each starts with empty caches."
    if e.stalls:
        yield f"Resident warps, {e.stalls.about}: {listed(e.stalls.reasons)}."


def listed(shares: Mapping[str, float]) -> str:
    """Return the largest shares with their names, as "long scoreboard 88%, wait 3%"."""
    shown = [f"{name} {share:.0%}" for name, share in shares.items() if share >= _LEAST_SHARE]
    return ", ".join(shown[:_MOST_SHARES])


def _device_memory(e: Explanation) -> str:
    memory, l2 = e.device_memory, f"the {_l2(e)} of L2"
    if memory.fits_l2:
        return f"They fit in {l2}, so device memory moves them about once."
    more = f"At {times(e.shape)}, they are {scaled(e.work.least_bytes)}B, more than {l2}"
    if memory.reads is None:
        return f"{more}."
    return (
        f"{more}. If concurrent blocks share their reads, {scaled(memory.reads)}B are read from "
        "device memory."
    )


def _measured(device: str, readings: Sequence[Reading]) -> RenderableType:
    rows = [
        (
            f"{r.rung} {times(r.shape)}",
            f"{scaled(r.l1_bytes)}B",
            f"{r.l1_hit:.0%}",
            f"{scaled(r.l2_bytes)}B",
            f"{scaled(r.dram_bytes)}B",
            seconds(r.time_s),
            f"{r.tflops:.3g}",
            f"{r.share:.1%}",
        )
        for r in readings
    ]
    headings = (
        f"measured, {device}",
        "from L1",
        "hits",
        "from L2",
        "memory",
        "time",
        "TFLOPS",
        "of peak",
    )
    return tables.plain_table(headings, rows)


def _loop(loop: Loop) -> str:
    chains = loop.operations / loop.chain
    waiting = (
        "each depends on the previous one" if chains == 1 else f"in {chains:.3g} independent chains"
    )
    operations, words = _some(loop.operations, "operation"), f"{loop.words_loaded} words"
    if loop.words_loaded:
        words += f" ({loop.operations / loop.words_loaded:.3g} operations per word)"
    loads = f"{loop.global_loads} global and {loop.shared_loads} shared loads"
    return f"Inner loop: {operations} on {words} from {loads}; {waiting}."


def _percent(difference: float) -> str:
    return "0" if not difference else f"{100 * difference:+,.1f}%"
