"""The results of a measurement: one record per contender and case.

A run is stored as a folder with one file for what all results share, and one file per result:

    FOLDER/run.json
    FOLDER/gemm/4096x4096x4096-row-normal/float4.json

In Python, and in a JSON list, each record contains both.

A record contains measured values and what is needed to repeat the measurement. Derived values
(TFLOPS, percentages) are computed on demand. A record exists only if the judge passed the result,
before and after the timing, and the time is possible on the hardware.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmlab.errors import InputError
from gemmlab.lab import peaks
from gemmlab.lab.peaks import FP32_PEAK, Peak
from gemmlab.lab.records import RUN, Json, decoded, entries, make_folder, write_text

IEEE = "ieee"  # the precision class of float32 arithmetic without tensor cores

# The keys that all records of a run share.
_OF_A_RUN = ("date", "protocol", "machine", "versions")

_FLAT_LIST = re.compile(r"\[\n[^][{}]*\]")

Case = tuple[str, tuple[int, ...], str, str]  # problem, sizes, layout, family


@dataclass(frozen=True)
class Record:
    """The result of one contender in one case.

    Times are in seconds, noise in percent, errors in units of u·magnitude, u = 2**-24 (the unit
    roundoff of float32). GPU times are those of cold runs, each after an L2 flush. A batch is a
    sequence of back-to-back launches over rotating operands; None if one launch takes longer than a
    batch should. CPU time is the wall time of a cold run, including its launch.
    """

    kernel: str  # "float4", "cublas"
    title: str  # "128-bit global loads and stores", "cuBLAS through nvmath-python"
    problem: str
    shape: dict[str, int]
    layout: str
    family: str
    seed: int  # of the inputs judged before timing; the inputs judged after it have seed + 1
    flops: int
    min_bytes: int
    precision: str | None  # precision class; None if unknown
    max_error_u: float | None  # over both judgements; None for a copy, which is not judged
    bound_u: float
    samples: int
    gpu_mean_s: float
    gpu_median_s: float
    gpu_p10_s: float
    gpu_p90_s: float
    gpu_noise_percent: float | None
    round_medians_s: list[float]  # one for each round, in order
    cpu_mean_s: float
    cpu_noise_percent: float | None
    batch_samples: int
    batch_mean_s: float | None
    sm_mhz: float | None  # mean over the cold runs, measured on the GPU
    temperature_c: float | None
    power_w: float | None
    warnings: list[str]
    baseline: Json | None  # {kernel, title, gpu_median_s, details}, measured in the same rounds
    details: Json  # for a kernel: compiler, launch, resources; for a library: version, compute type
    command: str  # repeats the measurement, with all contenders
    rotation_bytes: int  # total size of the operand sets through which launches rotate
    interleaved: list[str]  # all contenders of the case, in the order of their turns
    date: str  # ISO 8601, UTC: the end of the run's first case
    protocol: Json  # durations, NVBench's version
    machine: Json  # GPU, driver, clocks, power limit, measured and datasheet roofs
    versions: dict[str, str]
    cupti_s: float | None = None  # by CUPTI's time stamps, caches warm; None if not measured

    @property
    def case(self) -> Case:
        return (self.problem, tuple(self.shape.values()), self.layout, self.family)

    @property
    def tflops(self) -> float | None:
        """The FLOP rate; None for a memory-bound problem, with fewer operations than bytes."""
        computes = self.flops > self.min_bytes
        return self.flops / self.gpu_median_s / 1e12 if computes else None

    @property
    def gigabytes_per_second(self) -> float:
        """The problem's minimum traffic over the time."""
        return self.min_bytes / self.gpu_median_s / 1e9

    @property
    def percent_of_baseline(self) -> float | None:
        """Speed in percent of the baseline's speed in the same rounds."""
        return 100 * self.baseline["gpu_median_s"] / self.gpu_median_s if self.baseline else None

    def peak(self, roofs: str) -> Peak | None:
        """The peak that bounds its FLOPs: the float32 one in precision class ieee, else the tensor
        cores', by the number of products if the kernel is a rung.

        `roofs` is "measured" or "datasheet". None if the peak is unknown.
        """
        roof: Mapping[str, float | None] = self.machine["roofs"][roofs]
        fp32, tensor = roof["fp32_tflops"], roof["tensor_tflops"]
        if self.precision == IEEE:
            return Peak(FP32_PEAK, fp32) if fp32 else None
        products = peaks.recorded_products(self.problem, self.kernel) or 1
        return peaks.of_tensor_cores(tensor, products) if tensor else None

    def roof_percent(self, roofs: str) -> float | None:
        """Speed in percent of the roof that limits: peak or bandwidth, whichever takes longer.

        `roofs` is "measured" or "datasheet". None if a peak is unknown.
        """
        peak = self.peak(roofs)
        bandwidth: float | None = self.machine["roofs"][roofs]["bandwidth_gbs"]
        if not peak or not bandwidth:
            return None
        least = max(self.flops / (peak.tflops * 1e12), self.min_bytes / (bandwidth * 1e9))
        return 100 * least / self.gpu_median_s


def dumps(records: Iterable[Record]) -> str:
    """Return the records as a strict JSON list."""
    return _text([asdict(record) for record in records])


def path(folder: Path, record: Record) -> Path:
    """Return the file of this result in the folder of its run."""
    sizes = "x".join(map(str, record.shape.values()))
    case = f"{sizes}-{record.layout}-{record.family}"
    return folder / record.problem / case / f"{record.kernel}.json"


def check_new(folder: Path) -> None:
    """Raise InputError if the folder already holds a run."""
    if (folder / RUN).exists():
        raise InputError(f"{folder} already holds a run; name a new folder")


def write(folder: Path, records: Sequence[Record]) -> None:
    """Write records of one run, beside those that the folder already holds of it.

    Each file is written completely or not at all. Raises InputError if the folder holds another run
    or cannot be written.
    """
    for record in records:
        shared = _text({key: getattr(record, key) for key in _OF_A_RUN})
        if not (folder / RUN).exists():
            make_folder(folder)
            write_text(folder / RUN, shared)
        elif (folder / RUN).read_text(encoding="utf-8") != shared:
            check_new(folder)
        file = path(folder, record)
        make_folder(file.parent)
        result = {key: value for key, value in asdict(record).items() if key not in _OF_A_RUN}
        write_text(file, _text(result))


def read(source: Path) -> list[Record]:
    """Read the records of a file, or all records below a folder in order of path.

    The folder may be that of a run, of several runs, or of a case.

    Raises:
        InputError: The source holds no records, or something else.
    """
    return decoded(Record, entries(source), source)


def _text(data: Any) -> str:
    """Format strict JSON, with each list of numbers or strings on one line."""
    text = json.dumps(_rounded(data), indent=2, ensure_ascii=False, allow_nan=False)
    return _FLAT_LIST.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def _rounded(value: Any) -> Any:
    """Round floats to seven digits, the precision of NVBench's float32 samples."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
