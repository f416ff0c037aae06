"""Headers for NVRTC that stand in for those of source written for nvcc.

NVRTC declares CUDA's own names, printf and assert without any header. Standard headers that device
code can use come from CCCL, which is bundled with NVRTC. Headers of host code are empty, so a file
compiles if its kernels do not use them.
"""

from __future__ import annotations

import atexit
import re
import tempfile
from contextlib import ExitStack
from functools import cache as memoized
from pathlib import Path
from typing import Any

from gemmlab.compile import cache
from gemmlab.core import scratch

# nvcc implicitly includes C library headers that declare these names.
PRELUDE = "gemmlab_prelude.h"
_TYPES = {"ushort": "unsigned short", "uint": "unsigned int", "ulong": "unsigned long"}
_SIZES = {8: "char", 16: "short", 32: "int", 64: "long long"}
_TYPES |= {f"int{bits}_t": f"signed {type_}" for bits, type_ in _SIZES.items()}
_TYPES |= {f"uint{bits}_t": f"unsigned {type_}" for bits, type_ in _SIZES.items()}
_INFINITY = "__builtin_bit_cast(float, 0x7f800000)"
_MACROS = {
    "INFINITY": _INFINITY,
    "NAN": "__builtin_bit_cast(float, 0x7fffffff)",
    "HUGE_VALF": _INFINITY,
    "HUGE_VAL": f"((double){_INFINITY})",
    "M_E": "2.7182818284590452354",
    "M_LOG2E": "1.4426950408889634074",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
    "CHAR_BIT": "8",
    "SCHAR_MIN": "(-128)",
    "SCHAR_MAX": "127",
    "UCHAR_MAX": "255",
    "CHAR_MIN": "SCHAR_MIN",
    "CHAR_MAX": "SCHAR_MAX",
    "SHRT_MIN": "(-SHRT_MAX - 1)",
    "SHRT_MAX": "0x7fff",
    "USHRT_MAX": "0xffff",
    "INT_MIN": "(-INT_MAX - 1)",
    "INT_MAX": "0x7fffffff",
    "UINT_MAX": "0xffffffff",
    "LONG_MIN": "(-LONG_MAX - 1)",
    "LONG_MAX": "LLONG_MAX",
    "ULONG_MAX": "ULLONG_MAX",
    "LLONG_MIN": "(-LLONG_MAX - 1)",
    "LLONG_MAX": "0x7fffffffffffffffLL",
    "ULLONG_MAX": "0xffffffffffffffffUL",
}
# A name that the source declares: in a #define, typedef, using or initialized variable.
_DECLARED = (
    r"#\s*define\s+{0}\b|\btypedef\b[^;]*\b{0}\s*;|\busing\s+{0}\b"
    r"|[\w{{,][\s*&]+{0}\s*(?:=[^=]|\{{)"
)

# CCCL 3.0 (CUDA 13.0) has other names for some of its headers.
_STANDARD = """
#if __has_include(<cuda/std/{name}>)
#include <cuda/std/{name}>
#elif __has_include(<cuda/std/__{name}_>)
#include <cuda/std/__{name}_>
#endif
namespace cuda {{ namespace std {{ }} }}
namespace std {{ using namespace cuda::std; }}
"""

# A tensor map may be a parameter; kernels use no other type of the driver.
_CUDA_H = """
#pragma once
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
typedef struct CUtensorMap_st CUtensorMap;
"""
# CUB's block and warp primitives; NVRTC rejects cub.cuh, which includes host code as well.
_CUB = ["block_adjacent_difference", "block_discontinuity", "block_exchange", "block_histogram"]
_CUB += ["block_load", "block_merge_sort", "block_radix_sort", "block_reduce", "block_scan"]
_CUB += ["block_run_length_decode", "block_shuffle", "block_store", "warp_exchange", "warp_load"]
_CUB += ["warp_merge_sort", "warp_reduce", "warp_scan", "warp_store"]

_EMPTY = ["cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h"]
_EMPTY += ["cublas_v2.h", "curand.h", "assert.h", "cassert", "stdio.h", "cstdio", "stdlib.h"]
_EMPTY += ["cstdlib", "string.h", "cstring", "time.h", "ctime", "chrono", "fstream", "iomanip"]
_EMPTY += ["iostream", "map", "memory", "random", "set", "sstream", "stdexcept", "string"]
_EMPTY += ["thread", "vector"]
_FROM_CCCL = ["algorithm", "array", "cfloat", "climits", "cmath", "cstdint", "limits", "tuple"]
_FROM_CCCL += ["type_traits", "utility"]
_INTEGERS = [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_INTEGERS += ["intptr_t", "uintptr_t"]
_FROM_CPP = {"float.h": "cfloat", "limits.h": "climits", "math.h": "cmath", "stdint.h": "cstdint"}


def provided(source: str) -> dict[str, str]:
    """Return the text of every header that gemmlab provides for a source, by name."""
    made = {PRELUDE: _prelude(source)} | dict.fromkeys(_EMPTY, "")
    for name in _FROM_CCCL:
        made[name] = _STANDARD.format(name=name)
    # stdint.h declares global types. Declare only these: more makes math functions ambiguous.
    made["cstdint"] += "".join(f"using cuda::std::{type_};\n" for type_ in _INTEGERS)
    made |= {"cuda.h": _CUDA_H, "cudaTypedefs.h": "#include <cuda.h>\n"}
    cub = (f"cub/{name.partition('_')[0]}/{name}.cuh" for name in _CUB)
    made["cub/cub.cuh"] = "#pragma once\n" + "".join(f"#include <{header}>\n" for header in cub)
    return made | {name: f"#include <{other}>\n" for name, other in _FROM_CPP.items()}


def _prelude(source: str) -> str:
    """Return declarations of the names that nvcc provides and the source does not declare."""
    lines = {name: f"typedef {type_} {name};\n" for name, type_ in _TYPES.items()}
    lines |= {name: f"#define {name} {value}\n" for name, value in _MACROS.items()}
    own = [line for name, line in lines.items() if not re.search(_DECLARED.format(name), source)]
    return "".join([*own, "namespace std {}\n"])


def include_paths(source: str, name: str, nvrtc: Any, version: str) -> list[Path]:
    """Return the source's folder and the folders of CUDA's headers; none without an #include.

    The headers are those bundled with NVRTC (13.5 and later), or those of an installed toolkit.
    """
    if not re.search(r"#\s*include", source):
        return []
    try:
        headers = _bundled(nvrtc, version)
        found = [headers, headers / "cccl"]
    except (AttributeError, RuntimeError):  # the bindings or NVRTC are older than 13.5
        found = _installed()
    return [Path(name).resolve().parent, *found]


def foreign(log: str, source: Path) -> str | None:
    """Return a file that a compiler's log names and that `source` should not include, or None.

    It may include files in its folder and headers of CUDA.
    """
    folders = [source.resolve().parent, cache.folder().resolve(), Path(tempfile.gettempdir())]
    for name in re.findall(r"(/[^\s(\"']+)\(\d+\)", log):
        path = Path(name).resolve()
        if not any(path.is_relative_to(folder) for folder in [*folders, *_installed()]):
            return str(name)
    return None


@memoized
def _installed() -> list[Path]:
    from cuda.pathfinder import find_nvidia_header_directory

    found = [find_nvidia_header_directory(library) for library in ("cudart", "cccl")]
    folders = [Path(folder) for folder in found if folder]
    # In a toolkit, the compiler's headers such as mma.h are next to the CCCL folder.
    return [*folders, *(folder.parent for folder in folders if folder.name == "cccl")]


@memoized
def _bundled(nvrtc: Any, version: str) -> Path:
    """Unpack NVRTC's bundled headers into the cache, or into a temporary folder if not writable."""
    headers = cache.folder() / f"headers-{version}"
    try:
        headers.mkdir(parents=True, exist_ok=True)
        (headers / ".writable").touch()
    except OSError:
        headers = _temporary()
    nvrtc.nvrtcInstallBundledHeaders(str(headers).encode(), 0)
    return headers


@memoized
def _temporary() -> Path:
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(scratch.folder())
