"""Host flows: the data that they move, the judge's findings in broken ones, time lines."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmlab
from gemmlab import problems
from gemmlab.compile.cute import compile_rung
from gemmlab.devices import flow, open_device
from gemmlab.devices.device import Launched, Span, check_managed
from gemmlab.errors import DeviceError, InputError, LaunchError
from gemmlab.kernels import ladder
from gemmlab.kernels.rung import Geometry
from gemmlab.lab import judge, metrics, records
from gemmlab.lab.climb import climb
from gemmlab.lab.records import Record
from gemmlab.report import timeline

ADD = problems.find("vector-add")
EXPLICIT = ladder.find("explicit")
PROGRAM = EXPLICIT.program or pytest.fail("the rung explicit has no host flow")
DEVICE = open_device("emulated")
ARTIFACT = compile_rung(EXPLICIT)
GEOMETRY = Geometry((1, 1, 1), (256, 1, 1))


def examined(program, n=1000, family="normal"):
    case = ADD.case({"n": n}, "row", family, 0)
    return judge.examine_flow(DEVICE, ARTIFACT, program, ADD, case)


def chunked(size, streams=2):
    rung = ladder.find("async-stream")
    return replace(rung, config=replace(rung.config, chunk=size, streams=streams))


RUNGS = (*ladder.rungs("vector-add")[:-1], chunked(4096))


def taken(n, rungs=RUNGS):
    """The records of a climb without a GPU."""
    return list(climb(ADD, ADD.case({"n": n}, "row", "normal", 0), rungs, DEVICE))


@pytest.mark.parametrize("n", [1, 255, 50_000])
def test_every_mode_moves_the_same_bytes(n):
    found = {record.rung: record for record in taken(n)}
    chunks = -(-n // 4096)
    transfers = {"explicit": 3, "managed": 0, "managed-prefetch": 4, "async-stream": 3 * chunks}
    assert {name: metrics.transfers(record) for name, record in found.items()} == transfers
    for name, record in found.items():
        assert record.verdict == "pass"
        assert (metrics.bytes_in(record), metrics.bytes_out(record)) == (8 * n, 4 * n)
        assert metrics.bytes_by_touch(record) == (12 * n if name == "managed" else 0)


def test_the_time_line_tells_streams_in_order():
    [record] = taken(1000, [chunked(256)])
    told = [(line["name"], line["stream"], line["bytes"]) for line in record.timeline]
    chunks = [256, 256, 256, 232]
    assert told == [
        line
        for i, size in enumerate(chunks)
        for line in (
            ("copy in", i % 2, 4 * size),
            ("copy in", i % 2, 4 * size),
            ("kernel", i % 2, 0),
            ("copy out", i % 2, 4 * size),
        )
    ]
    assert {line["start_ms"] for line in record.timeline} == {None}


def test_nothing_to_add_asks_for_nothing():
    for record in taken(0):
        assert (record.verdict, record.timeline) == ("pass", [])
        assert "nothing to launch" in record.message


def test_records_keep_their_time_line(tmp_path):
    path = tmp_path / "records.json"
    found = taken(300)
    records.write(path, found)
    assert records.read(path) == found


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 3000), blocks=st.integers(1, 9), streams=st.integers(1, 4))
def test_chunks_and_streams_do_not_change_the_result(n, blocks, streams):
    found = examined(chunked(256 * blocks, streams).program, n)
    assert found.verdict.passed, found.verdict.message
    assert len({line.stream for line in found.timeline}) <= streams
    assert sum(line.name == "kernel" for line in found.timeline) == -(-n // (256 * blocks))


def explicit(host, a, b, c, wait=True, copy_b=True, n=None):
    """The rung's flow, without some operations."""
    d_a, d_b, d_c = (host.device_like(vector) for vector in (a, b, c))
    stream = host.stream()
    stream.copy_in(d_a, a)
    if copy_b:
        stream.copy_in(d_b, b)
    grid = (-(-a.size // 256), 1, 1)
    stream.launch(Geometry(grid, (256, 1, 1)), d_a, d_b, d_c, n or a.size)
    stream.copy_out(c, d_c)
    if wait:
        stream.wait()


def spoils_its_input(host, a, b, c):
    explicit(host, a, b, c)
    a[7] = 0


@pytest.mark.parametrize(
    ("program", "status"),
    [
        (explicit, "pass"),
        (partial(explicit, wait=False), "unwritten output"),
        (partial(explicit, copy_b=False), "wrong answer"),
        (partial(explicit, n=999), "unwritten output"),
        (partial(explicit, n=1001), "out of bounds"),
        (spoils_its_input, "input modified"),
    ],
)
def test_the_judge_sees_what_a_flow_forgot(program, status):
    assert examined(program).verdict.status == status


def mismatched(host, a, b, c):
    host.stream().copy_in(host.device_like(a)[:10], a)


def mismatched_out(host, a, b, c):
    host.stream().copy_out(c[1:], host.device_like(c))


def mismatched_write(host, a, b, c):
    host.managed_like(a).write(a[1:2])


def strided(host, a, b, c):
    host.device_like(a)[::2]


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        (mismatched, "cannot copy 4000 bytes to 40 bytes"),
        (mismatched_out, "cannot copy 4000 bytes to 3996 bytes"),
        (mismatched_write, "cannot copy 4 bytes to 4000 bytes"),
        (strided, "must have step 1, not 2"),
    ],
)
def test_copies_between_different_sizes_are_refused(program, rule):
    with pytest.raises(InputError, match=rule):
        examined(program)


def test_a_launch_of_5000_threads_per_block_is_refused():
    def program(host, a, b, c):
        vectors = [host.device_like(vector) for vector in (a, b, c)]
        stream = host.stream()
        stream.launch(Geometry((10, 1, 1), (5000, 1, 1)), *vectors, a.size)
        stream.wait()

    rule = r"block \(5000, 1, 1\): block.x = 5000 is not between 1 and 1024"
    with pytest.raises(LaunchError, match=rule):
        examined(program, 50_000)
    with pytest.raises(InputError, match="5000 threads per block, must be 1 to 1024"):
        replace(EXPLICIT.config, threads=5000)


def test_so_is_that_launch_of_a_cuda_kernel(tmp_path):
    path = tmp_path / "add.cu"
    path.write_text(
        "__global__ void add(const float* a, const float* b, float* c, int n) {"
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }"
    )
    kernel = gemmlab.load(path)
    a, b, c = np.ones((3, 50_000), np.float32)
    with pytest.raises(LaunchError, match="5000 is not between 1 and 1024"):
        gemmlab.emulate(kernel, grid=10, block=5000, args=[a, b, c, 50_000])
    gemmlab.emulate(kernel, grid=100, block=500, args=[a, b, c, 50_000])
    assert (c == 2).all()


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("streams", 0, "streams = 0, must be 1 to 64"),
        ("chunk", 0, "chunk = 0 is not a positive multiple of threads = 256"),
        ("chunk", 1000, "chunk = 1000 is not a positive multiple"),
    ],
)
def test_illegal_chunks_are_refused(field, value, rule):
    with pytest.raises(InputError, match=rule):
        replace(ladder.find("async-stream").config, **{field: value})


def test_more_managed_memory_than_is_free_is_refused_with_both_numbers():
    check_managed(100, 100, "cuda:0")
    with pytest.raises(DeviceError, match=r"101 bytes .* requested, 100 are free on cuda:0"):
        check_managed(101, 100, "cuda:0")


class Clockwork:
    """A device on which each operation takes one millisecond longer than the previous one."""

    counters = None

    def __init__(self):
        self.now, self.took = 40.0, 0.0

    def runtime(self, artifact):
        return nullcontext(self)

    def allocate(self, nbytes):
        return None

    def queue(self):
        return self

    def work(self, *_):
        start, self.took = self.now, self.took + 1
        self.now = end = start + self.took
        return lambda: start, lambda: end

    copy_in = copy_out = launch = work

    def wait(self):
        pass


def clockwork() -> Any:
    return Clockwork()


def test_a_time_line_begins_with_its_first_operation():
    arrays = [np.zeros(4, np.float32) for _ in range(3)]
    found = flow.run_flow(clockwork(), ARTIFACT, PROGRAM, arrays)
    times = [(line.name, line.start_ms, line.end_ms) for line in found.timeline]
    assert times == [("copy in", 0, 1), ("copy in", 1, 3), ("kernel", 3, 6), ("copy out", 6, 10)]
    assert found.time_s == pytest.approx(0.010)
    assert found.launched == Launched()


def test_the_run_of_median_time_is_kept(monkeypatch):
    monkeypatch.setattr(flow, "_MEASURE_S", 0.0)
    arrays = [np.zeros(4, np.float32) for _ in range(3)]
    # Four operations per run: 1 to 4 ms, 5 to 8 ms and 9 to 12 ms.
    assert flow.measure_flow(clockwork(), ARTIFACT, PROGRAM, arrays).time_s == pytest.approx(0.026)


def test_parts_of_parts_of_memory_are_where_they_should_be():
    buffer: Any = object()
    memory = flow.DeviceArray(Span(buffer, 4096, 400), 4)
    assert memory[10:90][5:200].span == Span(buffer, 4096 + 60, 300)
    assert memory[90:20].span.nbytes == 0


def operation(name, stream, start, end, nbytes=0):
    return dict(name=name, stream=stream, bytes=nbytes, start_ms=start, end_ms=end)


BASE = Record(
    rung="explicit", problem="vector-add", shape={"n": 1}, layout="row",
    family="normal", seed=0, device="cuda:0", arch="sm_90a", verdict="pass", message="",
    bound_u=0.0, flops=1, min_bytes=12,
)  # fmt: skip


def test_a_picture_shows_what_took_most_of_each_column_and_what_would_not_be_seen():
    serial = [
        operation("copy in", 0, 0.0, 4.0),
        operation("kernel", 0, 4.0, 4.01),
        operation("copy out", 0, 4.01, 8.0),
    ]
    parallel = [
        operation("copy in", 0, 0.0, 2.0),
        operation("copy in", 1, 2.0, 4.0),
        operation("copy out", 0, 2.0, 3.0),
        operation("copy out", 0, 3.8, 4.1),
        operation("host read", None, 4.0, 8.0),
    ]
    told = [replace(BASE, timeline=serial), replace(BASE, rung="other", timeline=parallel)]
    assert timeline.lines(told, 29) == [
        "explicit, 8ms, 500µs per column",
        "  stream 0   ▓▓▓▓▓▓▓▓█░░░░░░░",
        "other, 8ms, 500µs per column",
        "  stream 0   ▓▓▓▓░░",
        "  stream 1       ▓▓▓▓",
        "  host               ▒▒▒▒▒▒▒▒",
        timeline.LEGEND,
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(timeline.BLOCKS)),
            st.sampled_from([None, 0, 1, 2]),
            st.floats(0, 1e4),
            st.floats(1e-3, 1e4),
        ),
        min_size=1,
        max_size=60,
    ),
    st.integers(60, 200),
)
def test_pictures_fit_and_have_a_row_per_stream(drawn, width):
    lines = [operation(name, stream, at, at + took) for name, stream, at, took in drawn]
    rows = timeline.lines([replace(BASE, timeline=lines)], width)
    assert all(len(row) <= width for row in rows)
    assert len(rows) == 2 + len({stream for _, stream, _, _ in drawn})


def test_without_times_there_are_bytes():
    told = timeline.lines(taken(9000), 120)
    assert told[0] == "explicit: 2 × copy in (72kB), 1 × kernel, 1 × copy out (36kB)"
    assert told[1] == "managed: 1 × kernel (72kB), 1 × host read (36kB)"
    assert told[2].startswith("managed-prefetch: 3 × prefetch in (72kB), 1 × kernel, 1 × prefetch")
    assert told[3] == "async-stream: 6 × copy in (72kB), 3 × kernel, 3 × copy out (36kB)"
    assert timeline.lines([BASE], 120) == []


def test_a_rung_with_a_flow_is_taught_by_it():
    assert EXPLICIT.lesson.startswith("Copy in, launch, copy out")
    assert "5,000" in EXPLICIT.lesson
    assert [Path(str(module.__file__)).name for module in EXPLICIT.modules] == [
        "explicit.py",
        "add.py",
    ]
