"""An explanation as a page for a terminal: sections of facts, pictures and one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import PurePath

from rich.console import Console, RenderableType
from rich.text import Text

from gemmlab.core.figures import digits, scaled, seconds
from gemmlab.hardware import limits
from gemmlab.hardware.specs import architecture
from gemmlab.lab.explain.counted import Loop
from gemmlab.lab.explain.explanation import Explanation, times
from gemmlab.lab.explain.patterns import Pattern
from gemmlab.lab.explain.readings import Reading
from gemmlab.report import explanation_pictures, tables

_ROOFLINE_WIDTH = 64
_SVG_WIDTH = 118
_PLAIN_FRACTION = 1024  # a larger product of numerator and denominator tells nobody anything


def show(explanation: Explanation, out: Console) -> None:
    """Print every section that has something to say."""
    e = explanation
    out.print(Text(f"{e.rung}: {e.change}", style="bold"))
    gpu = e.gpu
    out.print(
        f"{e.problem} {times(e.shape)}, {e.layout} layout, {e.arch}; {gpu.name}: "
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


def as_svg(explanation: Explanation) -> str:
    """The same page as SVG text."""
    title = f"gemmlab explain {explanation.rung}"
    return tables.picture(lambda out: show(explanation, out), _SVG_WIDTH, title, "explain")


def _sections(e: Explanation, width: int) -> Iterator[tuple[str, Iterable[RenderableType]]]:
    yield "Work", [tables.facts(dict(_work(e)))]
    yield "Roofline", _roofline(e, width)
    yield "Launch and occupancy", [tables.facts(dict(_launch(e)))]
    yield "Threads and warps", _warps(e)
    if e.counted:
        yield "What warp 0 of the first block asks of memory", _patterns(e, width)
    if e.rows:
        assert e.counted
        yield f"Model beside count, {times(e.counted.shape)}", _rows(e)
    if e.counted:
        yield "Caches and waiting", _caches(e)


def _work(e: Explanation) -> Iterator[tuple[str, str]]:
    work, traffic = e.work, e.work.traffic
    flops = f"{traffic.flops.symbols} = " if traffic and work.flops else ""
    yield "FLOPs", f"{flops}{scaled(work.flops)}" if work.flops else "none"
    yield "least traffic", f"{scaled(work.least_bytes)}B: inputs read once, outputs written once"
    if traffic is None:
        yield "traffic", "there is no model of this kernel"
        return
    asked = [
        f"{field.split('_')[1]} {quantity.symbols} = {scaled(quantity.value)}"
        for field in ("global_loads", "global_stores", "global_atomics")
        if (quantity := getattr(traffic, field)) and quantity.value
    ]
    total = f": {scaled(traffic.global_bytes)}B" if traffic.global_bytes is not None else ""
    yield "lanes ask for", f"{', '.join(asked)} elements{total}" if asked else "nothing"
    if work.threads:
        told = f"{_shares(e, work.per_thread)} per thread"
        per_result = _shares(e, work.per_result)
        yield "loads", told + (per_result and f"; {per_result} per result")


def _shares(e: Explanation, share: Callable[[str], Fraction | None]) -> str:
    told = []
    for space in ("global", "shared"):
        value = share(f"{space}_loads")
        told.append("" if value is None else f"{_in_k(e, value)} {space}")
    return " and ".join(filter(None, told))


def _in_k(e: Explanation, value: Fraction) -> str:
    """64 (K/8): as a share of the inner extent of a product, where that is a plain fraction."""
    part = value / e.shape["k"] if e.shape.get("k") else Fraction(0)
    if not part or part.numerator * part.denominator > _PLAIN_FRACTION:
        return _exact(value)
    above = "K" if part.numerator == 1 else f"{part.numerator}·K"
    below = "" if part.denominator == 1 else f"/{part.denominator}"
    return f"{_exact(value)} ({above}{below})"


def _exact(value: Fraction) -> str:
    """Four digits; all digits of the whole number from 1000 on."""
    return f"{float(value):.4g}" if value < 1000 else f"{float(value):,.0f}"


def _roofline(e: Explanation, width: int) -> Iterator[RenderableType]:
    roof = e.roof
    if not e.work.flops:
        yield f"No FLOPs. {_bound(e)}"
        return
    ceiling = e.caches.wavefront_tflops if e.caches else None
    columns = min(_ROOFLINE_WIDTH, width - 9)
    yield from map(Text, explanation_pictures.roofline_lines(roof, e.points, ceiling, columns))
    for mark, point in zip("abc", e.points, strict=False):
        yield (
            f"{mark}  {point.name}, {digits(point.intensity)} FLOP/byte: {point.tflops:.3g} TFLOPS "
            f"by {point.bound} {point.condition}"
        )
    if ceiling and ceiling < e.peak_tflops:
        yield f"╌  L1 and shared memory, a wavefront per clock and SM: at most {ceiling:.3g} TFLOPS"
    yield f"Ridge at {roof.ridge:.3g} FLOP/byte. {_bound(e)}"
    if e.peak_tflops > e.gpu.fp32_tflops:
        yield f"The FP32 peak is {e.gpu.fp32_tflops:.3g} TFLOPS: this roof is higher."


def _bound(e: Explanation) -> str:
    """The time that no launch is under, and what device memory adds where L2 holds nothing."""
    least, memory = e.least_time_s, e.memory_time_s
    by = f"the {e.peak}" if least == e.arithmetic_time_s else "the bandwidth of device memory"
    bound = f"No launch takes less than {seconds(least)}, by {by}."
    if memory <= e.arithmetic_time_s:
        return bound if memory else "Nothing is moved."
    moved = f"{scaled(e.work.least_bytes)}B to and from device memory take {seconds(memory)}"
    if least:
        return f"{bound} {moved}, less what L2 ({_l2(e)}) holds already."
    return f"{moved}: the least time of a launch, unless L2 ({_l2(e)}) holds the data already."


def _l2(e: Explanation) -> str:
    return f"{e.gpu.l2_mb:g} MiB"


def _launch(e: Explanation) -> Iterator[tuple[str, str]]:
    (grid, block, dynamic), sm = e.geometry, architecture(e.gpu.arch)
    yield (
        "launch",
        f"{_dims(grid)} blocks (≤ {_dims(limits.GRID_DIMS)}) of {_dims(block)} = "
        f"{math.prod(block):,} threads (≤ {limits.THREADS_PER_BLOCK:,})",
    )
    if e.resources:
        taken = e.resources
        yield (
            "takes",
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
            f"{found.blocks_per_sm} blocks; limited by {found.limiter} (room: {room})",
        )
    if e.refusal:
        yield "refused", e.refusal


def _dims(counts: Iterable[int]) -> str:
    return "×".join(f"{count:,}" for count in counts)


def _span(numbers: Iterable[int]) -> str:
    told = sorted(set(numbers))
    return str(told[0]) if len(told) == 1 else f"{told[0]}–{told[-1]}"


def _warps(e: Explanation) -> Iterator[RenderableType]:
    x, y, z = e.geometry.block
    threads = x * y * z
    first = [(i % x, i // x % y, i // (x * y)) for i in range(min(32, threads))]
    by_axis = zip("xyz", e.geometry.block, zip(*first, strict=True), strict=True)
    spans = ", ".join(f"{axis} {_span(values)}" for axis, size, values in by_axis if size > 1)
    yield (
        f"Thread id = x{f' + {x}·y' if y > 1 else ''}{f' + {x * y}·z' if z > 1 else ''}, cut into "
        f"{_some(-(-threads // 32), 'warp')} of 32. Warp 0: {spans or 'x 0'}."
    )
    if e.counted is None:
        return
    parted = e.counted.counters["ptx_branch_divergent.sum"]
    yield (
        f"{_some(parted, 'time')} a branch parts the lanes of a warp, whose sides then run one "
        "after the other."
        if parted
        else "No branch parts the lanes of a warp."
    )
    if e.counted.owners:
        owners = e.counted.owners
        rows, columns = explanation_pictures.tile_steps(owners)
        each = "element" if rows * columns == 1 else f"{rows}×{columns} elements, the upper left"
        yield (
            f"Which warp (0 to v) writes which of the first block's {len(owners)}×{len(owners[0])} "
            f"results; a character per {each}:"
        )
        yield from (Text(f"  {line}") for line in explanation_pictures.tile_lines(owners))


def _patterns(e: Explanation, width: int) -> Iterator[RenderableType]:
    assert e.counted
    for pattern in e.counted.patterns:
        yield _headline(pattern)
        lines = explanation_pictures.picture(pattern, width - 2)
        yield from (Text(f"  {line}", style="cyan") for line in lines)


def _headline(p: Pattern) -> str:
    where = f"{p.space} {p.operation}" + (f" {p.target}" if p.target else "")
    unit, cost = "wavefront", f"least {p.least}"
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
    yield tables.plain_table(("", "formula", "model", "counted", "differs"), cells)
    for row in e.rows:
        if row.reason:
            yield f"{row.name}: {row.reason}."


def _caches(e: Explanation) -> Iterator[RenderableType]:
    counted, caches = e.counted, e.caches
    assert counted and caches
    yield (
        f"At {times(counted.shape)} lanes ask for {scaled(caches.asked)}B of loads: "
        f"{scaled(caches.sectors)}B of sectors in L1. Inputs and outputs are "
        f"{scaled(caches.least)}B. {_device_memory(e)}"
    )
    ceiling = f": {caches.wavefront_tflops:.3g} TFLOPS at most" if e.work.flops else ""
    yield (
        f"{scaled(caches.wavefronts)} wavefronts of L1 and shared memory, one per clock and SM, "
        f"take at least {seconds(caches.wavefront_s)}{ceiling}."
    )
    if counted.loop:
        yield _loop(counted.loop)
    if e.measured:
        yield _measured(e.measured)


def _device_memory(e: Explanation) -> str:
    memory, l2 = e.device_memory, f"the {_l2(e)} of L2"
    if memory.fits_l2:
        return f"They fit in {l2}: device memory moves them about once, whatever lanes ask for."
    more = f"At {times(e.shape)} they are {scaled(e.work.least_bytes)}B, more than {l2}"
    if memory.reads is None:
        return f"{more}."
    return (
        f"{more}; if blocks that run together share what they read, {scaled(memory.reads)}B come "
        "from device memory."
    )


def _measured(readings: Sequence[Reading]) -> RenderableType:
    rows = [
        (
            f"{r.rung} {times(r.shape)}",
            f"{scaled(r.l1_bytes)}B",
            f"{r.l1_hit:.0%}",
            f"{scaled(r.l2_bytes)}B",
            f"{scaled(r.dram_bytes)}B",
            seconds(r.time_s),
        )
        for r in readings
    ]
    name = f"measured, {readings[0].device}"
    headings = (name, "loads in L1", "hits", "from L2", "from memory", "time")
    return tables.plain_table(headings, rows)


def _loop(loop: Loop) -> str:
    chains = loop.operations / loop.chain
    waiting = (
        "each waits for the one before it"
        if chains == 1
        else f"{chains:.3g} of them do not wait for each other"
    )
    operations, words = _some(loop.operations, "operation"), f"{loop.words_loaded} words"
    if loop.words_loaded:
        words += f" ({loop.operations / loop.words_loaded:.3g} each)"
    loads = f"{loop.global_loads} global and {loop.shared_loads} shared loads"
    return f"Inner loop: {operations} on {words} from {loads}; {waiting}."


def _percent(difference: float) -> str:
    return "0" if not difference else f"{100 * difference:+,.1f}%"
