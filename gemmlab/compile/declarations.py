"""The C++ types of a kernel's parameters and a module's variables, which PTX does not record.

The compiler reports them. For each type, one line is appended to the source. It names a deprecated
function whose template arguments are the type's properties, and the warning of NVRTC's front end
prints their values. This takes milliseconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from gemmlab.compile.artifact import Artifact, ParameterType, VariableType

_FILE = "gemmlab_types"
_AXES = 4  # most axes of an array
# NumPy has no bfloat16; uint16 holds its bits.
_DTYPES = {"bool": "bool", "float": "float32", "double": "float64", "signed char": "int8"}
_DTYPES |= {"char": "int8", "short": "int16", "int": "int32", "long": "int64", "long long": "int64"}
_DTYPES |= {"unsigned char": "uint8", "unsigned short": "uint16", "unsigned int": "uint32"}
_DTYPES |= {"unsigned long": "uint64", "unsigned long long": "uint64"}
_DTYPES |= {"__half": "float16", "__nv_bfloat16": "uint16"}
_VECTORS = {"char": "char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short"}
_VECTORS |= {"int": "int", "uint": "unsigned int", "longlong": "long long", "float": "float"}
_VECTORS |= {"ulonglong": "unsigned long long"}
_TYPES = [(cpp, cpp, 1) for cpp in _DTYPES]  # name, element type, number of elements
_TYPES += [
    (f"{prefix}{lanes}", cpp, lanes)
    for prefix, cpp in _VECTORS.items()
    for lanes in (1, 2, 3, 4)
    if "longlong" not in prefix or lanes < 3  # longlong3 and 4 are themselves deprecated
]
_TYPES += [
    ("double2", "double", 2),
    ("__half2", "__half", 2),
    ("__nv_bfloat162", "__nv_bfloat16", 2),
]
_CODES = {cpp: number for number, cpp in enumerate(_DTYPES, 1)}

_SETUP = """
#line 1 "gemmlab_types"
struct __half; struct __half2; struct __nv_bfloat16; struct __nv_bfloat162;
template <class T> struct gemmlab_type {{ static constexpr int code = 0, lanes = 1, points = 0; }};
template <class T> struct gemmlab_type<const T> : gemmlab_type<T> {{}};
template <class T> struct gemmlab_type<volatile T> : gemmlab_type<T> {{}};
template <class T> struct gemmlab_type<const volatile T> : gemmlab_type<T> {{}};
template <class T, int n> struct gemmlab_type<T[n]> : gemmlab_type<T> {{}};
template <class T, int n> struct gemmlab_type<const T[n]> : gemmlab_type<T> {{}};
template <class T> struct gemmlab_type<T*> : gemmlab_type<T> {{
  static constexpr int points = 1 + gemmlab_type<T>::points;
}};
template <class T> struct gemmlab_constant {{ static constexpr int value = 0; }};
template <class T> struct gemmlab_constant<const T> {{ static constexpr int value = 1; }};
template <class T, int n> struct gemmlab_constant<const T[n]> {{ static constexpr int value = 1; }};
template <class T, int n> struct gemmlab_constant<T[n]> : gemmlab_constant<T> {{}};
template <class T, int i> struct gemmlab_extent {{ static constexpr int value = 0; }};
template <class T, int n> struct gemmlab_extent<T[n], 0> {{ static constexpr int value = n; }};
template <class T, int n, int i> struct gemmlab_extent<T[n], i> : gemmlab_extent<T, i - 1> {{}};
template <int i, class T> struct gemmlab_parameter;
template <class R, class F, class... A> struct gemmlab_parameter<0, R (*)(F, A...)> {{
  using type = F;
}};
template <int i, class R, class F, class... A> struct gemmlab_parameter<i, R (*)(F, A...)>
    : gemmlab_parameter<i - 1, R (*)(A...)> {{}};
{types}
template <int number, int code, int lanes, int points, int constant, int... extents>
[[deprecated]] __device__ int gemmlab_answer();
#line 1 "gemmlab_types"
"""
_ANSWER = re.compile(
    rf"{_FILE}\((\d+)\): warning.*\[with number=\d+, "
    r"code=(\d+), lanes=(\d+), points=(\d+), constant=(\d), extents=<([^>]*)>"
)
_ERROR = re.compile(rf"{_FILE}\((\d+)\): error")

# For the parameters in a kernel's declaration.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BRACKETS = re.compile(r"\([^()]*\)|<[^<>]*>|\[[^\[\]]*\]")


class Declared(NamedTuple):
    """A C++ type.

    `dtype` is the NumPy name of its element type, "" for a struct. `extents` are those of an array,
    `lanes` the number of elements of a vector such as float4, `points` the levels of pointer (*).
    """

    dtype: str
    extents: tuple[int, ...]
    lanes: int
    points: int
    is_constant: bool


def typed(
    artifact: Artifact, source: str, instance: str | None, log: Callable[[str], str]
) -> Artifact:
    """Return the artifact with the C++ types and names of its parameters and variables, if known.

    `instance` is the kernel's C++ name if the PTX name does not determine it. `log(text)` returns
    the front end's log of the source followed by `text`.
    """
    kernel = instance or plain_name(artifact.entry)
    names = Counter(plain_name(v.symbol) for v in artifact.variable_types)
    variables = [
        replace(v, name=plain_name(v.symbol)) if names[plain_name(v.symbol)] == 1 else v
        for v in artifact.variable_types
    ]
    count = len(artifact.parameters)
    asked = [f"decltype({v.name})" for v in variables]
    asked += [f"gemmlab_parameter<{i}, decltype(&{kernel})>::type" for i in range(count)]
    if not asked:
        return artifact
    found = answers(log(questions(asked)), len(asked))
    of_variables, of_parameters = found[: len(variables)], found[len(variables) :]
    called = parameter_names(source, kernel, count)
    return replace(
        artifact,
        variable_types=tuple(
            _variable(known, type_)
            for known, type_ in zip(variables, of_variables, strict=True)
            # The compiler has folded const variables into the code; setting one has no effect.
            if type_ is None or not type_.is_constant
        ),
        parameters=tuple(
            _parameter(replace(parameter, name=name), type_)
            for parameter, name, type_ in zip(
                artifact.parameters, called, of_parameters, strict=True
            )
        ),
    )


def _variable(known: VariableType, declared: Declared | None) -> VariableType:
    if declared is None:
        return known
    if declared.points:
        found = replace(known, dtype="uint64", shape=declared.extents)
    elif declared.dtype:
        lanes = (declared.lanes,) if declared.lanes > 1 else ()
        found = replace(known, dtype=declared.dtype, shape=declared.extents + lanes)
    else:
        size = known.nbytes // (prod(declared.extents) or 1)
        found = replace(known, dtype="uint8", shape=(*declared.extents, size))
    return found if found.nbytes == known.nbytes else known


def _parameter(known: ParameterType, declared: Declared | None) -> ParameterType:
    if declared is None:
        return known
    # A vector passed by value is a struct; a pointer to a pointer is not an array of numbers.
    is_number = declared.points == 1 or (declared.points == 0 and declared.lanes == 1)
    return replace(known, dtype=declared.dtype if is_number else "", is_pointer=declared.points > 0)


def questions(expressions: Sequence[str]) -> str:
    """Return the text to append to a source to query the types that these expressions name."""
    types = "".join(
        f"template <> struct gemmlab_type<{name}> "
        f"{{ static constexpr int code = {_CODES[cpp]}, lanes = {lanes}, points = 0; }};\n"
        for name, cpp, lanes in _TYPES
    )
    lines = []
    for number, type_ in enumerate(expressions):
        own = f"gemmlab_type<{type_}>"
        extents = ", ".join(f"gemmlab_extent<{type_}, {axis}>::value" for axis in range(_AXES))
        lines.append(
            f"using gemmlab_{number} = decltype(gemmlab_answer<{number}, {own}::code, "
            f"{own}::lanes, {own}::points, gemmlab_constant<{type_}>::value, {extents}>());\n"
        )
    return _SETUP.format(types=types) + "".join(lines)


def answers(log: str, count: int) -> list[Declared | None]:
    """Return the types of the `count` expressions, in order; None for one that is invalid."""
    wrong = {int(line) for line in _ERROR.findall(log)}
    found: list[Declared | None] = [None] * count
    for answer in _ANSWER.finditer(log):
        line, code, lanes, points, is_constant = (int(answer[i]) for i in range(1, 6))
        if line in wrong:
            continue
        extents = [int(extent) for extent in answer[6].split(",")]
        dtype = [*_DTYPES.values()][code - 1] if code else ""
        found[line - 1] = Declared(
            dtype, tuple(n for n in extents if n), lanes, points, bool(is_constant)
        )
    return found


def parameter_names(source: str, kernel: str, count: int) -> tuple[str, ...]:
    """Return the parameters' names in the kernel's declaration; all "" if it is not found."""
    text = _COMMENT.sub(" ", source)
    called = re.sub(r"<.*", "", kernel, flags=re.DOTALL).rpartition("::")[2].strip()
    head = re.compile(rf"\b__global__\b[^;{{}}]*?\b{re.escape(called)}\s*\(")
    for found in head.finditer(text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        inside = text[found.end() : end - 1]
        while (plain := _BRACKETS.sub(" ", inside)) != inside:
            inside = plain
        names = [re.findall(r"\w+", part.partition("=")[0])[-1:] for part in inside.split(",")]
        if len(names) == count and all(names):
            return tuple(name for (name,) in names)
    return ("",) * count


def plain_name(symbol: str) -> str:
    """Return the C++ name of a PTX symbol: "lab::x" for _ZN3lab1xE and _ZN3lab1xEi.

    Unnamed namespaces are left out. The symbol of a template or of a variable in a function is
    returned unchanged.
    """
    names, rest = list[str](), re.sub(r"^_Z(?:N|L)?", "", symbol)
    if rest == symbol:
        return symbol
    while number := re.match(r"\d+", rest):
        end = number.end() + int(number[0])
        names.append(rest[number.end() : end])
        rest = rest[end:]
    is_template = rest.startswith("I")
    own = [name for name in names if not name.startswith(("_INTERNAL_", "_GLOBAL__N_"))]
    return symbol if is_template or not own else "::".join(own)
