"""A GPU that is the emulator with a clock of its own, and an NVBench that reads that clock."""

import itertools
import json
from types import SimpleNamespace

import numpy as np

from gemmlab.devices import Span
from gemmlab.devices.emulated import EmulatedDevice
from gemmlab.lab.bench import nvbench
from gemmlab.lab.bench.machine import Reading

SAMPLES = 5  # cold runs that the fake NVBench takes in a step
L2_BYTES = 4096
ONLY_TIMED = 2**28  # the copies that measure the bandwidth: a CPU would take a second for each


class FakeGpu(EmulatedDevice):
    """Launches take the seconds that `costs` has for their origin, with a little noise.

    A kernel without a cost takes a millisecond."""

    name = "cuda:0 Fake"

    def __init__(self, costs):
        super().__init__()
        self.costs, self.now = costs, 0.0
        self.log = []  # (origin, buffer of the output) of each launch
        self.stream = SimpleNamespace(sync=lambda: None)
        self._noise = itertools.cycle((1.0, 1.001, 0.999))
        properties = SimpleNamespace(
            multiprocessor_count=1,
            l2_cache_size=L2_BYTES,
            memory_clock_rate=1_000_000,
            global_memory_bus_width=512,
            ecc_enabled=1,
        )
        self.gpu = SimpleNamespace(name="Fake", properties=properties, sync=lambda: None)

    def spend(self, seconds):
        self.now += seconds * next(self._noise)

    def prepare(self, artifact, grid, block, args, dynamic_smem=0, cluster=None):
        buffers = [id(arg.buffer) for arg in args if isinstance(arg, Span)]

        def launch():
            self.log.append((artifact.origin, buffers[-1]))
            self.spend(self.costs.get(artifact.origin, 1e-3))
            if artifact.ptx:  # the FMA probe has none, and would take an emulator too long
                self.launch(artifact, grid, block, args, dynamic_smem, cluster)

        return launch

    def clear(self, span):
        span.buffer.data[span.offset : span.offset + span.nbytes] = 0

    def copy(self, target, source):
        self.log.append(("copy", id(target.buffer)))
        size = target.nbytes
        if size < ONLY_TIMED:
            source_bytes = source.buffer.data[source.offset : source.offset + size]
            target.buffer.data[target.offset : target.offset + size] = source_bytes
        self.spend(1e-2)


class FakeSensors:
    def read(self):
        return Reading(sm_mhz=1000.0, temperature_c=40.0, power_w=300.0)

    def facts(self):
        return {"driver": "1.2", "sm_max_mhz": 1000, "memory_mhz": 1000, "clocks": "as found"}


class FakeBench:
    """What gemmlab uses of cuda.bench, writing the JSON and the sample files that NVBench does."""

    NVBenchRuntimeError = RuntimeError

    def __init__(self, device):
        self._device = device

    def register(self, function):
        self._function = function
        return self

    def set_name(self, name):
        self._name = name
        return self

    def add_int64_axis(self, name, values):
        self._values = values
        return self

    def run_all_benchmarks(self, argv):
        self.argv = argv
        path = argv[argv.index("--jsonbin") + 1]
        states = []
        for value in self._values:
            state = FakeState(self._device, f"{path}.{value}.bin")
            try:
                self._function(state)
            except BaseException as error:  # as NVBench does: the state is skipped
                state.skip(str(error))
            states.append(state.as_json(value))
        values = [{"input_string": str(v), "value": v} for v in self._values]
        axes = [{"name": "Step", "type": "int64", "flags": "", "values": values}]
        found = {"name": self._name, "devices": [0], "axes": axes, "states": states}
        with open(path, "w") as file:
            json.dump({"devices": [], "benchmarks": [found]}, file)


class FakeState:
    def __init__(self, device, path):
        self._device, self._path = device, path
        self._skipped, self._summaries = None, []

    def set_stream(self, stream):
        assert stream is self._device.stream

    def skip(self, reason):
        self._skipped = reason

    def exec(self, launch, *, batched, sync):
        times = [self._timed(launch) for _ in range(SAMPLES)]
        np.asarray(times, "<f4").tofile(self._path)
        self._tell("nv/json/bin:nv/cold/sample_times", ("filename", "string", self._path))
        self._summaries[-1]["data"].append({"name": "size", "type": "int64", "value": SAMPLES})
        self._tell("nv/cold/time/cpu/mean", ("value", "float64", 2 * float(np.mean(times))))
        self._tell("nv/cold/time/cpu/stdev/relative", ("value", "float64", 0.01))
        if batched:
            self._tell("nv/batch/sample_size", ("value", "int64", 4))
            times = [self._timed(launch) for _ in range(4)]
            self._tell("nv/batch/time/gpu/mean", ("value", "float64", float(np.mean(times))))

    def _timed(self, launch):
        start = self._device.now
        launch(None)
        return self._device.now - start

    def _tell(self, tag, *data):
        keys = ("name", "type", "value")
        entries = [dict(zip(keys, one, strict=True)) for one in data]
        self._summaries.append({"tag": tag, "data": entries})

    def as_json(self, value):
        return {
            "name": f"Step={value}",
            "device": 0,
            "type_config_index": 0,
            "axis_values": [{"name": "Step", "type": "int64", "value": str(value)}],
            "summaries": self._summaries,
            "is_skipped": self._skipped is not None,
            "skip_reason": self._skipped,
        }


def install(monkeypatch, device):
    """Make gemmlab measure on the fake; the fake NVBench comes back."""
    bench = FakeBench(device)
    monkeypatch.setattr(nvbench, "_library", lambda: bench)
    return bench
