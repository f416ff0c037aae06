"""The parts that measurements share: records, turns, percentiles, errors, profiles, the command."""

import json
import subprocess
import types
from functools import partial
from typing import Any

import pytest
from cpu import Cpu

from benchmarks import __main__ as command
from benchmarks import caches, children, counters, ncu, rungs, stalls
from benchmarks.measurement import Measurement, Rows
from benchmarks.record import Record, text
from benchmarks.timing import MOST_CALLS, host_us, in_turn, percentiles, quantiles, replays, spread
from gemmlab import problems
from gemmlab.core import built
from gemmlab.devices.device import Span
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.errors import DeviceError, InputError, StateError, UnknownNameError
from gemmlab.kernels import ladder

HEAD = {"gpu": "a CPU", "torch": "2"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.json"


def test_a_record_keeps_its_rows_and_replaces_those_measured_again(path):
    first = Record(path, HEAD | {"torch": "1", "gone": "x"})
    first.add("squares", {"n": 1, "us": 1}, ("n",))
    first.add("squares", {"n": 2, "us": 2}, ("n",))
    first.put("cases", "one", 7)
    again = Record(path, HEAD)
    again.add("squares", {"n": 1, "us": 3}, ("n",))
    assert json.loads(path.read_text()) == {
        **HEAD,
        "squares": [{"n": 1, "us": 3}, {"n": 2, "us": 2}],
        "cases": {"one": 7},
    }
    assert [x.name for x in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("kept", "message"), [('{"gpu": "H100"}', "is of H100"), ("{", "is not JSON")]
)
def test_a_record_of_another_gpu_is_refused(path, kept, message):
    path.write_text(kept)
    with pytest.raises(InputError, match=message):
        Record(path, HEAD)
    assert path.read_text() == kept


def test_text_splits_the_first_levels_into_lines():
    value = {"a": [{"b": 1, "c": [2, 3]}, {}], "×": "y"}
    assert text(value, 2) == '{\n "a": [\n  {"b": 1, "c": [2, 3]},\n  {}\n ],\n "×": "y"\n}'
    assert all(json.loads(text(value, depth)) == value for depth in (None, 0, 1, 2, 3, 4))


def measurement(**cases):
    def rows(gpu):
        for n in (1, 2, 3):
            if n == 3:
                raise KeyboardInterrupt
            yield {"n": n}

    return Measurement(parts={"named": cases, "rows": Rows(rows, ("n",))})


def test_an_interruption_keeps_what_was_measured(path):
    with pytest.raises(KeyboardInterrupt):
        measurement(a=lambda gpu: 5).run(path, [], Cpu())
    found = json.loads(path.read_text())
    assert (found["named"], found["rows"]) == ({"a": 5}, [{"n": 1}, {"n": 2}])


def test_parts_and_cases_are_chosen_by_name(path):
    chosen = measurement(first=lambda gpu: 1, second=lambda gpu: gpu.place)
    chosen.run(path, ["named:sec"], Cpu())
    assert json.loads(path.read_text())["named"] == {"second": "cpu"}
    for wrong in ("nothing", "named:third", "rows:1"):
        with pytest.raises(UnknownNameError):
            chosen.run(path, [wrong], Cpu())


def test_named_rows_are_chosen_by_a_word(path):
    def rows(gpu, word=""):
        yield from ({"name": name} for name in ("float4", "shared") if word in name)

    measured = Measurement(parts={"rows": Rows(rows, ("name",), named=True)})
    for choice, names in (("rows:sha", ["shared"]), ("rows", ["shared", "float4"])):
        measured.run(path, [choice], Cpu())
        assert [row["name"] for row in json.loads(path.read_text())["rows"]] == names


def test_runs_take_turns():
    log: list[str] = []

    def run(name):
        log.append(name)
        return len(log)

    found = in_turn({x: partial(run, x) for x in "ab"}, 3)
    assert log == [*"ababab"] and found == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_graphs_have_equally_many_calls_and_are_replayed_in_turn():
    gpu = Cpu()
    counts = {"a": 0, "b": 0}
    calls = {x: lambda x=x: counts.update({x: counts[x] + 1}) for x in "ab"}
    times = replays(gpu, calls, 5)
    assert gpu.log == ["call"] * 2 + ["graph"] * 2 + ["replay"] * 10
    each = (counts["a"] - 4) // 5  # three calls to warm up, one timed
    assert counts == {"a": 4 + 5 * each, "b": 4 + 5 * each} and each == MOST_CALLS
    assert times["a"] == [pytest.approx(1e-9 * (1002 + 2 * i) / each) for i in range(5)]


def test_statistics():
    samples = [float(x) for x in range(11)]
    assert percentiles(samples[::-1]) == (1, 5, 9)
    ten = [1e-6 * (1 + i / 10) for i in range(11)]  # 1 to 2 µs
    assert spread(ten, 6e6) == {"us": 1.5, "tflops": 4, "p10": 3.2, "p90": 5.5}
    assert quantiles(samples, "us", 1) == {"us": 5, "p10": 1.0, "p90": 9.0}
    assert host_us(Cpu(), lambda: None, 10, 3) == 0.1


PROFILE = """\
==PROF== Connected
"ID","Kernel Name","x.sum","y.sum"
"","","byte",""
"0","gemm_naive","1,024","2"
"1","sm90_xmma","5","6.0"
"""


def test_counters_are_read_from_a_profile():
    found = ncu.parsed(PROFILE, ["x.sum", "y.sum"])
    assert found == [
        ("gemm_naive", {"x.sum": 1024, "y.sum": 2}),
        ("sm90_xmma", {"x.sum": 5, "y.sum": 6}),
    ]


def test_the_kernels_of_a_product_are_added():
    pack, cublas = ("matmul_pack", {"x": 8}), ("sm90_xmma", {"x": 3})
    launches = [
        ("gemm_naive", {"x": 1}),
        pack,
        ("gemm_fp16x3", {"x": 2}),
        cublas,
        ("add", {"x": 4}),
    ]
    counts = [1, 2, None]
    found = caches.summed([*launches, pack, *launches[2:]], [*counts, 2, None])
    assert [counts["x"] for counts in found] == [1, 10, 7, 10, 7]
    for wrong in ([1, 2], [1, 2, None, 1], [1, 5]):
        with pytest.raises(DeviceError, match=f"{len(wrong)} products, but .* read gemm_naive, "):
            caches.summed(launches, wrong)


DETAILS = f'''==PROF== connected
"Kernel Name","{stalls.PREFIX}wait","{stalls.PREFIX}barrier"
"","warp","warp"
"k","5 (0x7f10: 4; 0x7f20: 1)","7 (0x7f20: 3; 0x7f30: 4)"
'''
LISTED = """"Kernel Name","k"
"Address","Source"
"0x7f00","NOP"
"0x7f10","NOP"
"0x7f20","NOP"
"0x7f30","NOP"
"""


def test_samples_are_told_by_instruction_and_reason():
    [samples], [listed] = stalls.reasons(DETAILS), stalls.addresses(LISTED)
    assert samples == {"wait": {0x7F10: 4, 0x7F20: 1}, "barrier": {0x7F20: 3, 0x7F30: 4}}
    assert stalls.reading(samples, listed) == {
        "reasons": {"barrier": 7, "wait": 5},
        "samples": [0, 4, 4, 4],
        "main": ".baa",
    }


def test_every_rung_is_read_at_shapes_that_it_supports():
    every = {
        (name, ladder.label(ladder.in_layout(rung, layout)), layout)
        for name in problems.NAMES
        for layout in problems.find(name).layouts
        for rung in ladder.rungs(name)
    }
    read = [one.row() for one in counters.chosen()]
    assert {(row["problem"], row["rung"], row["layout"]) for row in read} == every
    again = {(one.problem.name, one.name) for one in counters.chosen("transpose:reg,sum:wide")}
    assert again == {("transpose", "register-tiles")}
    sampled = [one.row() for one in stalls.chosen()]
    assert {row["layout"] for row in sampled} == {"row"}
    assert {row["problem"] for row in sampled} == set(stalls.SIZES)


class Profiled:
    """A device that emulates, and notes which launches a profiler would see."""

    def __init__(self):
        self.emulated, self.is_on, self.seen = EmulatedDevice(), False, list[Any]()
        self.device = types.SimpleNamespace(
            arch=self.emulated.arch,
            call=self.call,
            prepare=self.prepare,
            stream=types.SimpleNamespace(sync=lambda: None),
        )

    def call(self, name):
        self.is_on = name == "cuProfilerStart"

    def placed(self, array):
        buffer = self.emulated.allocate(max(array.nbytes, 1))
        buffer.write(array)
        return Span(buffer, 0, array.nbytes)

    def prepare(self, *launch):
        def run():
            found = self.emulated.launch(*launch)
            if self.is_on:
                self.seen.append((launch[0].entry, found.counters))

        return run


@pytest.mark.slow
def test_the_profiler_sees_the_kernel_of_each_rung():
    gpu: Any = Profiled()
    sizes: dict[str, list[tuple[int, ...]]] = {"sum": [(5003,)], "gemm": [(40, 24, 16)]}
    names = "sum:vectorized,sum:fixed-order,gemm:tensor-core-"
    rungs.run(gpu, rungs.launches(sizes, ("row",), all_families=False, word=names))
    entries = [entry.partition("_row")[0] for entry, _ in gpu.seen]
    assert entries == ["sum_vectorized", "sum_fixed_order", "gemm_tensor_core_pipelined"]
    assert all(counters for _, counters in gpu.seen)


@pytest.mark.slow
def test_the_profiler_sees_all_kernels_of_a_product(monkeypatch):
    gpu: Any = Profiled()
    monkeypatch.setattr(caches, "Gpu", lambda: gpu)
    monkeypatch.setattr(caches, "CASES", [("row", 40)])
    caches.launch("tile-1d,tensor-core-pipelined")
    made = caches.products(gpu.device.arch, "tile-1d,tensor-core-pipelined")
    assert [product.name for product in made] == ["tile-1d", "tensor-core-pipelined"]
    counts = [product.kernels(gpu.device.arch) for product in made]
    assert all(entry.startswith(caches.OWN) for entry, _ in gpu.seen)
    assert [len(gpu.seen), *counts] == [5, 1, 4]


def test_a_function_is_called_in_a_fresh_process(monkeypatch):
    monkeypatch.setattr(children, "_printed", lambda words: words[1:])
    assert children.call("new_shapes", "child", "a b") == [
        *("-m", "benchmarks.children", "new_shapes", "child", "a b")
    ]
    assert children.main("first_product_child", "cpu")[1:] == [
        "benchmarks.first_product_child",
        "cpu",
    ]


@pytest.mark.slow
def test_a_fresh_process_returns_json():
    assert children.call("gpu", "versions")["gemmlab"]
    with pytest.raises(subprocess.CalledProcessError):
        children.call("gpu", "nothing")


def test_kernels_that_would_be_compiled_are_not_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(built, "FOLDER", tmp_path)
    with pytest.raises(StateError, match="build-kernels"):
        children.check_kernels()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["matmull", "x.json"], 2, "no measurement 'matmull'; there are: matmul, direct, "),
        (["contract", "x.json", "rows:a"], 2, "part 'rows' has no case 'a'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, code, said, capsys):
    assert command.main(words) == code
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out


def test_the_command_lists_its_measurements(capsys):
    assert command.main([]) == 0 == command.main(["contract"])
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in command.NAMES)
    assert "benchmarks contract benchmarks/h100/contract.json" in printed


def test_an_interruption_ends_the_command_with_130(monkeypatch, capsys):
    class Interrupted:
        def run(self, target, parts, gpu):
            raise KeyboardInterrupt

    monkeypatch.setattr(command.module("contract"), "MEASUREMENT", Interrupted())
    assert command.main(["contract", "x.json"]) == 130
    assert capsys.readouterr().err == "interrupted; x.json has what was measured\n"
