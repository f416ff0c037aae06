"""python -m benchmarks [MEASUREMENT FILE [PART …]]; without arguments, what there is."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu import Gpu
from benchmarks.measurement import check_name
from gemmlab.errors import GemmlabError

# Each has a file or a folder here, which defines MEASUREMENT.
NAMES = (
    "matmul",
    "direct",
    "new-shapes",
    "first-product",
    "contract",
    "alternatives",
    "programs",
    "fp16x3",
    "ladder",
    "concepts",
    "latencies",
    "cold",
    "register-file",
    "sm80",
    "others",
    "caches",
    "counters",
    "stalls",
    "accesses",
    "sanitizer",
    "emulator",
)
USAGE = """\
python -m benchmarks MEASUREMENT FILE [PART …]

Measures parts, or all, into FILE, where the results of other parts are kept. PART:WORD measures the
cases of a part whose names contain WORD. Ctrl-C keeps what was measured. `scripts/readme` puts the
records of benchmarks/ into the pages.
"""


def module(name: str) -> Any:
    """The file of a measurement. Raises UnknownNameError."""
    check_name("measurement", name, dict.fromkeys(NAMES))
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


def overview() -> str:
    """The measurements, what each of them measures, and its parts."""
    lines = [USAGE]
    for name in NAMES:
        found = module(name)
        lines.append(f"{name:15} {found.__doc__.splitlines()[0]}")
        lines.append(f"{'':15} {', '.join(found.MEASUREMENT.parts)}")
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Return the exit code."""
    match words:
        case [name, target, *parts] if not {"-h", "--help"} & {*words}:
            try:
                return module(name).MEASUREMENT.run(Path(target), parts, Gpu())
            except GemmlabError as error:
                print(f"benchmarks: {error}", file=sys.stderr)
                return error.exit_code
            except FileNotFoundError as error:  # a tool, or the folder of the record
                print(f"benchmarks: there is no {error.filename}", file=sys.stderr)
                return 1
            except subprocess.CalledProcessError as error:
                print(f"benchmarks: {error}", file=sys.stderr)
                return 1
            except KeyboardInterrupt:
                print(f"interrupted; {target} has what was measured", file=sys.stderr)
                return 130
        case [name] if name in NAMES:
            print(module(name).__doc__)
        case _:
            print(overview())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
