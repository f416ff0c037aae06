"""C++ types of a kernel's parameters and of a module's variables, which PTX does not have.

The compiler tells them: a line for each is put behind the source, in which a deprecated function is
named with what is asked as its template arguments, and NVRTC's front end, which takes milliseconds,
warns of it with their values.
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
_AXES = 4  # of an array, at most
# NumPy has no bfloat16: its bits.
_DTYPES = {"bool": "bool", "float": "float32", "double": "float64", "signed char": "int8"}
_DTYPES |= {"char": "int8", "short": "int16", "int": "int32", "long": "int64", "long long": "int64"}
_DTYPES |= {"unsigned char": "uint8", "unsigned short": "uint16", "unsigned int": "uint32"}
_DTYPES |= {"unsigned long": "uint64", "unsigned long long": "uint64"}
_DTYPES |= {"__half": "float16", "__nv_bfloat16": "uint16"}
_VECTORS = {"char": "char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short"}
_VECTORS |= {"int": "int", "uint": "unsigned int", "longlong": "long long", "float": "float"}
_VECTORS |= {"ulonglong": "unsigned long long"}
_TYPES = [(cpp, cpp, 1) for cpp in _DTYPES]  # name, what it consists of, how many
_TYPES += [
    (f"{prefix}{lanes}", cpp, lanes)
    for prefix, cpp in _VECTORS.items()
    for lanes in (1, 2, 3, 4)
    if "longlong" not in prefix or lanes < 3  # longer ones are deprecated themselves
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
[[deprecated]] __device__ int gemmlab_told();
#line 1 "gemmlab_types"
"""
_TOLD = re.compile(
    rf"{_FILE}\((\d+)\): warning.*\[with number=\d+, "
    r"code=(\d+), lanes=(\d+), points=(\d+), constant=(\d), extents=<([^>]*)>"
)
_ERROR = re.compile(rf"{_FILE}\((\d+)\): error")

# A kernel as it is declared in the source.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BRACKETS = re.compile(r"\([^()]*\)|<[^<>]*>|\[[^\[\]]*\]")


class Declared(NamedTuple):
    """A C++ type. `dtype` is NumPy's name of what it consists of, "" for a struct; `extents` are
    those of an array, `lanes` those of a vector such as float4; `points`: how many * it has."""

    dtype: str
    extents: tuple[int, ...]
    lanes: int
    points: int
    is_constant: bool


def typed(
    artifact: Artifact, source: str, instance: str | None, log: Callable[[str], str]
) -> Artifact:
    """The artifact with C++'s types and names of its parameters and variables, as far as known.

    `instance` is what C++ calls its kernel where the PTX does not tell; `log` gives the front end's
    log of the source with some text behind it.
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
    told = answers(log(questions(asked)), len(asked))
    of_variables, of_parameters = told[: len(variables)], told[len(variables) :]
    called = parameter_names(source, kernel, count)
    return replace(
        artifact,
        variable_types=tuple(
            _variable(known, type_)
            for known, type_ in zip(variables, of_variables, strict=True)
            # What is const is in the code already: to set it would do nothing.
            if type_ is None or not type_.is_constant
        ),
        parameters=tuple(
            _parameter(replace(parameter, name=name), type_)
            for parameter, name, type_ in zip(
                artifact.parameters, called, of_parameters, strict=True
            )
        ),
    )


def _variable(known: VariableType, told: Declared | None) -> VariableType:
    if told is None:
        return known
    if told.points:
        found = replace(known, dtype="uint64", shape=told.extents)
    elif told.dtype:
        lanes = (told.lanes,) if told.lanes > 1 else ()
        found = replace(known, dtype=told.dtype, shape=told.extents + lanes)
    else:
        size = known.nbytes // (prod(told.extents) or 1)
        found = replace(known, dtype="uint8", shape=(*told.extents, size))
    return found if found.nbytes == known.nbytes else known


def _parameter(known: ParameterType, told: Declared | None) -> ParameterType:
    if told is None:
        return known
    # A vector that is passed by value is a struct; what is behind two pointers no array of numbers.
    is_number = told.points == 1 or (told.points == 0 and told.lanes == 1)
    return replace(known, dtype=told.dtype if is_number else "", is_pointer=told.points > 0)


def questions(expressions: Sequence[str]) -> str:
    """What to put behind a source to learn the types that C++ calls by these expressions."""
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
            f"using gemmlab_{number} = decltype(gemmlab_told<{number}, {own}::code, {own}::lanes, "
            f"{own}::points, gemmlab_constant<{type_}>::value, {extents}>());\n"
        )
    return _SETUP.format(types=types) + "".join(lines)


def answers(log: str, count: int) -> list[Declared | None]:
    """Of the `count` expressions, in order; None for one that means nothing in this source."""
    wrong = {int(line) for line in _ERROR.findall(log)}
    found: list[Declared | None] = [None] * count
    for told in _TOLD.finditer(log):
        line, code, lanes, points, is_constant = (int(told[i]) for i in range(1, 6))
        if line in wrong:
            continue
        extents = [int(extent) for extent in told[6].split(",")]
        dtype = [*_DTYPES.values()][code - 1] if code else ""
        found[line - 1] = Declared(
            dtype, tuple(n for n in extents if n), lanes, points, bool(is_constant)
        )
    return found


def parameter_names(source: str, kernel: str, count: int) -> tuple[str, ...]:
    """Names of the parameters in the kernel's declaration; "" for all where it is not found."""
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
    """What C++ calls a symbol of the PTX: "lab::x" for _ZN3lab1xE and _ZN3lab1xEi, without unnamed
    namespaces; the symbol itself where it is that of a template or of a variable in a function."""
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
