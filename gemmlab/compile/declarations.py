"""The C++ types of a kernel's parameters and a module's variables, which PTX does not record.

The compiler reports them. For each kernel and variable, one line is appended to the source. It
names a deprecated function whose template arguments are the properties of types, and the warning of
NVRTC's front end prints their values. Lines for the kernels that are found in the text are compiled
together with it: a second pass of the front end takes 20 ms, or a second if headers are large.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
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
template <class T> struct gemmlab_type {{ enum : int {{ code = 0, lanes = 1, points = 0 }}; }};
template <class T> struct gemmlab_type<const T> : gemmlab_type<T> {{}};
template <class T> struct gemmlab_type<volatile T> : gemmlab_type<T> {{}};
template <class T> struct gemmlab_type<const volatile T> : gemmlab_type<T> {{}};
template <class T, int n> struct gemmlab_type<T[n]> : gemmlab_type<T> {{}};
template <class T, int n> struct gemmlab_type<const T[n]> : gemmlab_type<T> {{}};
template <class T> struct gemmlab_type<T*> : gemmlab_type<T> {{
  enum : int {{ points = 1 + gemmlab_type<T>::points }};
}};
template <class T> struct gemmlab_constant {{ enum : int {{ value = 0 }}; }};
template <class T> struct gemmlab_constant<const T> {{ enum : int {{ value = 1 }}; }};
template <class T, int n> struct gemmlab_constant<const T[n]> {{ enum : int {{ value = 1 }}; }};
template <class T, int n> struct gemmlab_constant<T[n]> : gemmlab_constant<T> {{}};
template <class T, int i> struct gemmlab_extent {{ enum : int {{ value = 0 }}; }};
template <class T, int n> struct gemmlab_extent<T[n], 0> {{ enum : int {{ value = n }}; }};
template <class T, int n, int i> struct gemmlab_extent<T[n], i> : gemmlab_extent<T, i - 1> {{}};
template <int code, int lanes, int points> struct gemmlab_parameter {{}};
template <class... P> struct gemmlab_parameters {{}};
{types}
template <class... A> __device__ auto gemmlab_kernel(void (*)(A...)) -> gemmlab_parameters<
    gemmlab_parameter<gemmlab_type<A>::code, gemmlab_type<A>::lanes, gemmlab_type<A>::points>...>;
template <int number, class... P>
[[deprecated]] __device__ int gemmlab_answer(gemmlab_parameters<P...>);
template <int number, int code, int lanes, int points, int constant, int... extents>
[[deprecated]] __device__ int gemmlab_answer();
#line 1 "gemmlab_types"
"""
_MESSAGE = re.compile(rf"(?m)^{_FILE}\((\d+)\): (error|warning).*\n(?:.+\n)*\n?")
_OF_VARIABLE = re.compile(
    r"\[with number=\d+, "
    r"code=(\d+), lanes=(\d+), points=(\d+), constant=(\d), extents=<([^>]*)>"
)
_OF_KERNEL = re.compile(r"\[with number=\d+, P=<(.*)>\]")
_PARAMETER = re.compile(r"gemmlab_parameter<(\d+), (\d+), (\d+)>")

_REMARK = 'Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"\n\n'

# Outermost namespaces of the headers that come with CUDA.
_CUDA_NAMESPACES = frozenset({"cooperative_groups", "cub", "cuda", "nvcuda", "thrust"})

# For kernels and their parameters in the text.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_ATTRIBUTE = re.compile(r"\b__\w+__\s*\((?:[^()]|\([^()]*\))*\)")  # __launch_bounds__(256)
_MACRO = re.compile(r"(?m)^[ \t]*#[ \t]*define\b(?:.*\\\n)*.*")
_IF, _END_IF = (re.compile(rf"(?m)^[ \t]*#[ \t]*{word}") for word in ("if", "endif"))
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


def kernels(source: str) -> list[str]:
    """Return the names of kernels that the text declares once, and not in a namespace, template,
    macro or conditional part, so that their names are valid at its end."""
    text = _STRING.sub('""', _COMMENT.sub(" ", source))
    text = _ATTRIBUTE.sub(" ", _MACRO.sub(" ", text))
    opened, found = 0, Counter[str]()
    for before, behind in pairwise(re.split(r"\b__global__\b", text)):
        opened += before.count("{") - before.count("}")
        opened += len(_IF.findall(before)) - len(_END_IF.findall(before))
        is_template = "template" in re.split(r"[;{}]", before)[-1]
        head, parenthesis, _ = behind.partition("(")
        words = re.findall(r"\w+", head)
        if parenthesis and words and not re.search(r"[;{})]", head):
            found[words[-1]] += 2 if opened or is_template else 1
    return [name for name, count in found.items() if count == 1]


def typed(
    artifact: Artifact,
    source: str,
    instance: str | None,
    entries: Iterable[str],
    known: Mapping[str, Sequence[Declared] | None],
    log: Callable[[str], str],
) -> Artifact:
    """Return the artifact with the C++ types and names of its parameters and variables, if known.
    Variables of CUDA's headers, often hundreds, are left out.

    `instance` is the kernel's C++ name if the PTX name does not determine it; `entries` are the PTX
    names of all kernels. `known` are the types of parameters by kernel. `log(text)` returns the
    front end's log of the source followed by `text`; it is called if types are missing, with the
    same text for each kernel of a source.
    """
    kernel = instance or plain_name(artifact.entry)
    own = [v for v in artifact.variable_types if not is_of_cuda(v.symbol)]
    names = Counter(plain_name(v.symbol) for v in own)
    variables = [
        replace(v, name=plain_name(v.symbol)) if names[plain_name(v.symbol)] == 1 else v
        for v in own
    ]
    # Only variables with a C++ name are queried: the compiler stops after a hundred errors.
    places = [i for i, v in enumerate(variables) if not v.name.startswith("_Z")]
    count = len(artifact.parameters)
    asked = list[str]()
    if count and known.get(kernel) is None:
        asked = [instance] if instance else [plain_name(entry) for entry in entries]
    found, of_variables = dict(known), dict[int, Declared | None]()
    if asked or places:
        text = log(questions(asked, [variables[i].name for i in places]))
        found |= answers(text, asked)
        answered = answers_of_variables(text, len(asked), len(places))
        of_variables = dict(zip(places, answered, strict=True))
    of_parameters: Sequence[Declared | None] = found.get(kernel) or ()
    if len(of_parameters) != count:
        of_parameters = [None] * count
    called = parameter_names(source, kernel, count)
    return replace(
        artifact,
        variable_types=tuple(
            _variable(variable, type_)
            for i, variable in enumerate(variables)
            # The compiler has folded const variables into the code; setting one has no effect.
            if (type_ := of_variables.get(i)) is None or not type_.is_constant
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


def questions(kernels: Sequence[str], variables: Sequence[str] = ()) -> str:
    """Return the text to append to a source to query the types of parameters and variables.

    The code does not change. Returns "" if nothing is asked.
    """
    if not kernels and not variables:
        return ""
    types = "".join(
        f"template <> struct gemmlab_type<{name}> "
        f"{{ enum : int {{ code = {_CODES[cpp]}, lanes = {lanes}, points = 0 }}; }};\n"
        for name, cpp, lanes in _TYPES
    )
    lines = [f"gemmlab_kernel(&{kernel})" for kernel in kernels]
    lines = [f"gemmlab_answer<{number}>({line})" for number, line in enumerate(lines)]
    for number, variable in enumerate(variables, len(lines)):
        type_ = f"decltype({variable})"
        own = f"gemmlab_type<{type_}>"
        extents = ", ".join(f"gemmlab_extent<{type_}, {axis}>::value" for axis in range(_AXES))
        lines.append(
            f"gemmlab_answer<{number}, {own}::code, {own}::lanes, {own}::points, "
            f"gemmlab_constant<{type_}>::value, {extents}>()"
        )
    named = (f"using gemmlab_{i} = decltype({line});\n" for i, line in enumerate(lines))
    return _SETUP.format(types=types) + "".join(named)


def answers(log: str, kernels: Sequence[str]) -> dict[str, list[Declared] | None]:
    """Return the types of the parameters of each kernel; None for one that is invalid."""
    found: dict[str, list[Declared] | None] = dict.fromkeys(kernels)
    for number, message in _answered(log):
        if number < len(kernels) and (answer := _OF_KERNEL.search(message)):
            found[kernels[number]] = [
                Declared(_dtype(code), (), int(lanes), int(points), False)
                for code, lanes, points in _PARAMETER.findall(answer[1])
            ]
    return found


def answers_of_variables(log: str, first: int, count: int) -> list[Declared | None]:
    """Return the types of the `count` variables whose questions follow `first` others, in order;
    None for one that is invalid."""
    found: list[Declared | None] = [None] * count
    for number, message in _answered(log):
        if number >= first and (answer := _OF_VARIABLE.search(message)):
            code, lanes, points, is_constant, extents = answer.groups()
            shape = tuple(int(extent) for extent in extents.split(",") if int(extent))
            described = Declared(_dtype(code), shape, int(lanes), int(points), is_constant == "1")
            found[number - first] = described
    return found


def _dtype(code: str) -> str:
    return [*_DTYPES.values()][int(code) - 1] if int(code) else ""


def _answered(log: str) -> list[tuple[int, str]]:
    """Return the numbers of the questions that have no error, and the text of each message."""
    messages = [(int(found[1]) - 1, found[2], found[0]) for found in _MESSAGE.finditer(log)]
    wrong = {number for number, kind, _ in messages if kind == "error"}
    return [(number, text) for number, _, text in messages if number not in wrong]


def without_answers(log: str) -> tuple[str, bool]:
    """Return the log without messages on questions, and whether one of them was an error."""
    wrong = any(found[2] == "error" for found in _MESSAGE.finditer(log))
    rest = _MESSAGE.sub("", log)
    return rest if "warning" in rest.replace(_REMARK, "") else rest.replace(_REMARK, ""), wrong


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
    names, rest = _names(re.sub(r"^_Z(?:N|L)?", "", symbol))
    is_template = rest.startswith("I")
    return symbol if is_template or not names else "::".join(names)


def is_of_cuda(symbol: str) -> bool:
    """Whether a PTX symbol is in a namespace of CUDA's headers."""
    names, _ = _names(re.sub(r"^_ZZ?NK?", "", symbol))
    return bool(names) and names[0] in _CUDA_NAMESPACES


def _names(mangled: str) -> tuple[list[str], str]:
    """Return the names in a mangled name without its prefix, and the text that follows them.

    Unnamed namespaces are left out.
    """
    names = list[str]()
    while number := re.match(r"\d+", mangled):
        end = number.end() + int(number[0])
        names.append(mangled[number.end() : end])
        mangled = mangled[end:]
    return [x for x in names if not x.startswith(("_INTERNAL_", "_GLOBAL__N_"))], mangled
