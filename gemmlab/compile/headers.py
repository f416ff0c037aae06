"""Headers that source written for nvcc includes, as NVRTC has them.

NVRTC knows CUDA's own declarations, printf and assert without any header. Standard headers that
device code can use come from CCCL, which NVRTC carries; those of host code are empty, so that a
file of kernels compiles as long as its kernels do not use them.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache as memoized
from pathlib import Path
from typing import Any

from gemmlab.compile import cache

# nvcc has these names from the C library.
PRELUDE = "gemmlab_prelude.h"
_PRELUDE_TEXT = """
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
"""

# CCCL 3.0, of CUDA 13.0, has some of its headers under another name.
_STANDARD = """
#if __has_include(<cuda/std/{name}>)
#include <cuda/std/{name}>
#elif __has_include(<cuda/std/__{name}_>)
#include <cuda/std/__{name}_>
#endif
namespace cuda {{ namespace std {{ }} }}
namespace std {{ using namespace cuda::std; }}
"""

_EMPTY = ["cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h"]
_EMPTY += ["cublas_v2.h", "curand.h", "assert.h", "cassert", "stdio.h", "cstdio", "stdlib.h"]
_EMPTY += ["cstdlib", "string.h", "cstring", "time.h", "ctime", "chrono", "fstream", "iomanip"]
_EMPTY += ["iostream", "map", "memory", "random", "set", "sstream", "stdexcept", "string"]
_EMPTY += ["thread", "vector"]
_FROM_CCCL = ["algorithm", "array", "cfloat", "climits", "cmath", "cstdint", "limits", "tuple"]
_FROM_CCCL += ["type_traits", "utility"]
_INTEGERS = [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_INTEGERS += ["intptr_t", "uintptr_t"]
_FROM_CPP = {"float.h": "cfloat", "limits.h": "climits", "math.h": "cmath", "stdint.h": "cstdint"}


def provided() -> dict[str, str]:
    """Text of every header that gemmlab provides, by name."""
    made = {PRELUDE: _PRELUDE_TEXT} | dict.fromkeys(_EMPTY, "")
    for name in _FROM_CCCL:
        made[name] = _STANDARD.format(name=name)
    # C's header declares its types globally; no more than these, or math functions turn ambiguous.
    made["cstdint"] += "".join(f"using cuda::std::{type_};\n" for type_ in _INTEGERS)
    return made | {name: f"#include <{other}>\n" for name, other in _FROM_CPP.items()}


def include_paths(source: str, name: str, nvrtc: Any, version: str) -> list[Path]:
    """The folder of the source, and CUDA's headers: those that NVRTC carries, from 13.5 on, or
    those of an installed toolkit."""
    if not re.search(r"#\s*include", source):
        return []
    try:
        headers = _bundled(nvrtc, version)
        found = [headers, headers / "cccl"]
    except (AttributeError, RuntimeError):  # of the bindings, or of NVRTC: older than 13.5
        found = _installed()
    return [Path(name).resolve().parent, *found]


@memoized
def _installed() -> list[Path]:
    from cuda.pathfinder import find_nvidia_header_directory

    found = [find_nvidia_header_directory(library) for library in ("cudart", "cccl")]
    folders = [Path(folder) for folder in found if folder]
    # A toolkit has the headers of its compiler, such as mma.h, beside CCCL.
    return [*folders, *(folder.parent for folder in folders if folder.name == "cccl")]


@memoized
def _bundled(nvrtc: Any, version: str) -> Path:
    """NVRTC's own headers, unpacked once: into the cache, or where that cannot be written, anew."""
    headers = cache.folder() / f"headers-{version}"
    try:
        headers.mkdir(parents=True, exist_ok=True)
        (headers / ".writable").touch()
    except OSError:
        headers = Path(_temporary().name)
    nvrtc.nvrtcInstallBundledHeaders(str(headers).encode(), 0)
    return headers


@memoized
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gemmlab-headers-")
