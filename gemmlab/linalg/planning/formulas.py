"""Plans as formulas: a plan is computed once with symbols, then for each shape as plain arithmetic.

Products of one kind take the same path through the planner, and differ in numbers alone. A trace
is a run of the planner with symbols in place of the numbers. It has each operation as a line of
Python, and each comparison as a condition under which the lines apply. The lines become a function.
Traces of several products become one function, which branches where a comparison has different
outcomes.
"""

from __future__ import annotations

import operator
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeAlias


class NotTraceable(Exception):
    """The planner needs the value of a symbol."""


class Symbol:
    """A number of a plan, known only by the expression that computes it."""

    __slots__ = ("_recorder", "name", "value")

    def __init__(self, recorder: Recorder, name: str, value: float) -> None:
        """value: the number in the product that is traced; it decides comparisons."""
        self._recorder, self.name, self.value = recorder, name, value

    def __neg__(self) -> Symbol:
        return self._recorder.negated(self)

    def __bool__(self) -> bool:
        return self._recorder.decided(self.name, bool(self.value))

    def __format__(self, _: str) -> str:
        return self.name  # the text is never shown

    def __index__(self) -> NoReturn:
        raise NotTraceable

    __int__ = __float__ = __hash__ = __index__


class Recorder:
    """The lines of a function; they compute what a plan does."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[str, Symbol] = {}
        self._decided: dict[str, bool] = {}
        self._negated: dict[str, Symbol] = {}  # the symbol that a symbol negates, by its name

    def computed(self, expression: str, value: float) -> Symbol:
        """Return the symbol for an expression; the function computes each one once."""
        if expression not in self._known:
            self._known[expression] = Symbol(self, f"v{len(self._known)}", value)
            self.lines.append(f"{self._known[expression].name} = {expression}")
        return self._known[expression]

    def negated(self, symbol: Symbol) -> Symbol:
        """Return the symbol for -x; divisions that round up ask for it twice."""
        if symbol.name in self._negated:
            return self._negated[symbol.name]
        result = self.computed(f"-{symbol.name}", -symbol.value)
        self._negated[result.name] = symbol
        return result

    def called(self, function: str, args: Sequence[Any], results: Sequence[float]) -> list[Symbol]:
        """Return symbols for the results of a function that the traced function is given."""
        first = len(self._known)
        names = [f"v{first + i}" for i in range(len(results))]
        line = f"({', '.join(names)},) = {function}({', '.join(map(expression_of, args))})"
        self.lines.append(line)
        found = [Symbol(self, *pair) for pair in zip(names, results, strict=True)]
        self._known.update(zip(names, found, strict=True))
        return found

    def decided(self, condition: str, holds: bool) -> bool:
        """Return whether the condition holds; the function applies only where that is the same."""
        if condition not in self._decided:
            self._decided[condition] = holds
            self.lines.append(f"if {f'not ({condition})' if holds else condition}: return None")
        return holds


_PLAIN, _MOST = 4, 96  # calls without a formula before one is made, and most formulas per function
# Integer operations with a constant that do not change the number; the last two only if the
# constant is the right operand.
_UNCHANGED = (("*", 1), ("+", 0), ("-", 0), ("//", 1))


def _operation(sign: str, function: Callable[[Any, Any], Any], *, reflected: bool) -> Any:
    def method(self: Symbol, other: Any) -> Any:
        pair = (other, self) if reflected else (self, other)
        names = [x.name if isinstance(x, Symbol) else repr(x) for x in pair]
        values = [x.value if isinstance(x, Symbol) else x for x in pair]
        recorder: Recorder = self._recorder
        if type(other) is type(self.value) is int:
            if (sign, other) in _UNCHANGED and not (reflected and sign in ("-", "//")):
                return self
            if (sign, other) == ("*", 0):
                return 0
        text, value = f"{names[0]} {sign} {names[1]}", function(*values)
        if isinstance(value, bool):
            return recorder.decided(text, value)
        return recorder.computed(text, value)

    return method


for _name, _sign in {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "truediv": "/",
    "pow": "**",
}.items():
    _function = getattr(operator, _name)
    setattr(Symbol, f"__{_name}__", _operation(_sign, _function, reflected=False))
    setattr(Symbol, f"__r{_name}__", _operation(_sign, _function, reflected=True))
for _name, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    _method = _operation(_sign, getattr(operator, _name), reflected=False)
    setattr(Symbol, f"__{_name}__", _method)


class Traces:
    """Traces of a plan, and the function that computes what the plan does wherever one applies."""

    def __init__(
        self, names: Sequence[str], place: Callable[..., Sequence[int]] | None = None
    ) -> None:
        """names: of the plan's arguments, which are numbers.

        If there is a `place`, a function like it is the last argument. It takes numbers and returns
        as many numbers as `place` does.
        """
        self._names, self._place, self._lines = names, place, list[list[str]]()
        self.text = ""  # Python that defines the function, as `traced`
        # Takes what the plan takes, and returns nested tuples of numbers. None where a comparison
        # has another outcome than for the values of each trace.
        self.function: Callable[..., Any] = lambda *_: None

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, values: Sequence[float], plan: Callable[..., Any]) -> None:
        """Trace the plan where the function does not apply yet. Raises NotTraceable."""
        lines = [*self._lines, _traced(self._names, values, plan, self._place)]
        names = self._names if self._place is None else [*self._names, "place"]
        text = _text(names, lines)
        self.function, self.text, self._lines = _compiled(text), text, lines


class Formulas:
    """A function of numbers, computed by formulas: one for each outcome of its comparisons."""

    def __init__(
        self,
        names: Sequence[str],
        function: Callable[..., Any],
        made: Callable[..., Any] | None = None,
    ) -> None:
        """made: formulas made earlier, as `text` defines them."""
        self._traces, self._function, self._calls = Traces(names), function, 0
        self._made, self._adding = made or (lambda *_: None), threading.Lock()

    @property
    def text(self) -> str:
        """Python that defines a function `traced`, which applies the formulas made by this object.

        It returns None where there is no formula. Empty if none has been made.
        """
        return self._traces.text

    def __call__(self, *numbers: float) -> Any:
        if (found := self._made(*numbers)) is not None:
            return found
        if (found := self._traces.function(*numbers)) is not None:
            return found
        # Making a formula takes as long as about forty calls without it.
        self._calls += 1
        if self._calls > _PLAIN and self._adding.acquire(blocking=False):  # else a thread adds one
            try:
                if len(self._traces) < _MOST and self._traces.function(*numbers) is None:
                    self._calls = 0
                    with suppress(NotTraceable):
                        self._traces.add(numbers, self._function)
            finally:
                self._adding.release()
        return self._function(*numbers)


def _traced(
    names: Sequence[str],
    values: Sequence[float],
    plan: Callable[..., Any],
    place: Callable[..., Sequence[int]] | None,
) -> list[str]:
    """The lines of one trace.

    `plan` gets a symbol for each name and, if there is a `place`, a function that records its call.
    """
    recorder = Recorder()
    given: list[Any] = [Symbol(recorder, *pair) for pair in zip(names, values, strict=True)]
    if place is not None:
        given.append(lambda *args: recorder.called("place", args, place(*args)))
    result = f"return {expression_of(plan(*given))}"
    if place is None:
        return [*recorder.lines, result]
    before = _before_calls(recorder.lines)
    later = [line for line in recorder.lines if line not in before]
    return [*before, *later, result]


def _text(names: Sequence[str], traces: Sequence[Sequence[str]]) -> str:
    lines = _joined(_sooner(_needed(_merged(traces))[0]))
    body = "\n".join(_indented(lines))
    return f"def traced({', '.join(names)}):\n{body}\n"


def _compiled(text: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": __name__}
    exec(text, space)
    function: Callable[..., Any] = space["traced"]
    return function


class _Branch(NamedTuple):
    """The lines where a condition holds; where it does not, the lines after it apply."""

    condition: str
    lines: list[_Line]


_Line: TypeAlias = "str | _Branch"


def _merged(traces: Sequence[Sequence[str]]) -> list[_Line]:
    """The lines of all traces. They are the same up to a condition that ends differently."""
    lines: list[_Line] = []
    for each in zip(*traces, strict=False):
        if len({*each}) > 1:
            break
        lines.append(each[0])
    if len(traces) == 1:
        return lines
    count = len(lines)
    if not all(trace[count].startswith("if ") for trace in traces):
        raise NotTraceable  # symbols of different types
    groups: dict[str, list[Sequence[str]]] = {}
    for trace in traces:
        groups.setdefault(trace[count], []).append(trace[count + 1 :])
    (holds, yes), (_, no) = sorted(groups.items(), key=lambda x: not x[0].startswith("if not ("))
    condition = holds.removeprefix("if not (").removesuffix("): return None")
    return [*lines, _Branch(condition, _merged(yes)), *_merged(no)]


def _needed(lines: Sequence[_Line]) -> tuple[list[_Line], set[str]]:
    """The lines that a result or a condition depends on, and the variables that they use."""
    used, kept = set[str](), list[_Line]()
    for line in reversed(lines):
        if isinstance(line, _Branch):
            own, names = _needed(line.lines)
            used |= names.union(_variables(line.condition))
            kept.append(_Branch(line.condition, own))
            continue
        target = line.partition(" = ")[0] if not line.startswith(("if ", "return ")) else ""
        if not target or not used.isdisjoint(_variables(target)):
            used.update(_variables(line))
            kept.append(line)
    return kept[::-1], used


def _sooner(lines: Sequence[_Line]) -> list[_Line]:
    """Move the lines that decide whether the function applies to the front, up to each branch.

    A function that does not apply then returns early.
    """
    found, rest = list[_Line](), [*lines]
    while rest:
        count = next((i for i, x in enumerate(rest) if isinstance(x, _Branch)), len(rest))
        found += _decisions_first([line for line in rest[:count] if isinstance(line, str)])
        for branch in rest[count : count + 1]:
            assert isinstance(branch, _Branch)
            found.append(_Branch(branch.condition, _sooner(branch.lines)))
        rest = rest[count + 1 :]
    return found


def _decisions_first(lines: Sequence[str]) -> list[str]:
    """The lines; each decision comes right after those that it needs, the others come last."""
    found: dict[str, None] = {}
    for i, decision in enumerate(lines):
        if not decision.startswith("if "):
            continue
        used, needed = {*_variables(decision)}, [decision]
        for line in reversed(lines[:i]):
            target, _, expression = line.partition(" = ")
            if expression and line not in found and not used.isdisjoint(_variables(target)):
                used.update(_variables(expression))
                needed.append(line)
        found.update(dict.fromkeys(reversed(needed)))
    return [*found, *(line for line in lines if line not in found)]


def _before_calls(lines: Sequence[str]) -> list[str]:
    """The lines that depend on no call of `place`."""
    later, found = set[str](), []
    for line in lines:
        target, _, expression = line.partition(" = ")
        if line.startswith("(") or not later.isdisjoint(_variables(expression or line)):
            later.update(_variables(target))
        else:
            found.append(line)
    return found


def _joined(lines: Sequence[_Line]) -> list[_Line]:
    """The lines, with each expression that is used only once moved to where it is used."""
    return _with_texts(_counted(lines, Counter()), {})


# Each line with how often its variable is used, 0 if it has none or calls a function. For a branch,
# its condition with its lines.
_Counted: TypeAlias = "list[tuple[str, int | _Counted]]"


def _counted(lines: Sequence[_Line], uses: Counter[str]) -> _Counted:
    """Count the uses of each variable. uses: those after the lines; these are added.

    A variable of a branch may have the name of another one after the branch.
    """
    found: _Counted = []
    for line in reversed(lines):
        if isinstance(line, _Branch):
            found.append((line.condition, _counted(line.lines, uses)))
            uses.update(_variables(line.condition))
            continue
        target, equals, expression = line.partition(" = ")
        counts = [uses.pop(name, 0) for name in _variables(target) if equals]
        found.append((line, 0 if line.startswith("(") else sum(counts)))
        uses.update(_variables(expression or line))
    return found[::-1]


def _with_texts(lines: _Counted, texts: dict[str, str]) -> list[_Line]:
    """The lines, where expressions replace their variables, if `texts` has them."""

    def joined(text: str) -> str:
        parts = [*_parts(text)]
        parts[1::2] = [texts.get(name, name) for name in parts[1::2]]
        return "".join(parts)

    found: list[_Line] = []
    for line, uses in lines:
        if isinstance(uses, list):
            found.append(_Branch(joined(line), _with_texts(uses, {**texts})))
            continue
        target, equals, expression = line.partition(" = ")
        text = joined(expression or line)
        if uses == 1 and len(text) < _LONGEST:
            texts[target] = f"({text})"
        else:
            texts.pop(target, None)
            found.append(target + equals + text if equals else text)
    return found


def _indented(lines: Sequence[_Line], depth: int = 1) -> Iterator[str]:
    for line in lines:
        if isinstance(line, _Branch):
            yield f"{' ' * depth}if {line.condition}:"
            yield from _indented(line.lines, depth + 1)
        else:
            yield " " * depth + line


_VARIABLE = re.compile(r"\b(v\d+)\b")
_LONGEST = 200  # characters of such an expression: Python limits how deep brackets are nested


@lru_cache(8192)  # each line is read several times, and again with each trace that has it
def _parts(text: str) -> list[str]:
    """The text, split: every second part is a variable."""
    return _VARIABLE.split(text)


@lru_cache(8192)
def _variables(text: str) -> tuple[str, ...]:
    return tuple(_parts(text)[1::2])


def least(x: Any, y: Any) -> Any:
    """The smaller of two numbers; for symbols, without a comparison that would separate kinds."""
    return _chosen("<", x, y) if isinstance(x, Symbol) or isinstance(y, Symbol) else min(x, y)


def most(x: Any, y: Any) -> Any:
    """The larger of two numbers, likewise."""
    return _chosen(">", x, y) if isinstance(x, Symbol) or isinstance(y, Symbol) else max(x, y)


def first_least(values: Sequence[Any]) -> tuple[Any, Any]:
    """The index of the first of the smallest numbers, and that number; symbols are allowed."""
    recorder = next((x._recorder for x in values if isinstance(x, Symbol)), None)
    numbers = [x.value if isinstance(x, Symbol) else x for x in values]
    index, value = numbers.index(min(numbers)), min(numbers)
    if recorder is None:
        return index, value
    all_values: Any = tuple(numbers)
    given = recorder.computed(expression_of(tuple(values)), all_values).name
    best = recorder.computed(f"min({given})", _of_any(value, numbers))
    return recorder.computed(f"{given}.index({best.name})", index), best


def _chosen(sign: str, x: Any, y: Any) -> Symbol:
    """y if it is smaller (sign <) or larger (>) than x, else x: faster than `min` and `max`."""
    recorder = next(z._recorder for z in (x, y) if isinstance(z, Symbol))
    values = [z.value if isinstance(z, Symbol) else z for z in (x, y)]
    first, second = expression_of(x), expression_of(y)
    value = _of_any({"<": min, ">": max}[sign](values), values)
    return recorder.computed(f"{second} if {second} {sign} {first} else {first}", value)


def _of_any(value: float, values: Sequence[float]) -> float:
    """The value of a symbol that may be any of these: not known to be an int unless all are."""
    return value if all(type(x) is int for x in values) else float(value)


def expression_of(value: Any) -> str:
    """The text of a number, of a symbol, or of nested tuples of them, in a formula."""
    if isinstance(value, tuple):
        return f"({''.join(f'{expression_of(x)}, ' for x in value)})"
    return value.name if isinstance(value, Symbol) else repr(value)
