"""A rung with another configuration, and the configurations among which `gemmlab tune` searches."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

from gemmlab import problems
from gemmlab.errors import InputError, UnknownNameError
from gemmlab.kernels.common import MAX_SMEM, MAX_THREADS, require
from gemmlab.kernels.rung import Rung

_FIXED = ("layout", "a_major", "b_major")  # the option --layout determines them
_MAX_WARPS = 64  # per multiprocessor
_INT32 = 2**31


def read(words: Sequence[str]) -> dict[str, str]:
    """Return settings by name from words such as "block_m=64"; one text may hold several.

    Raises InputError for another form and for a name that is given twice.
    """
    found: dict[str, str] = {}
    for word in (part for text in words for part in text.split()):
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InputError(f"--set {word!r} is not of the form name=value")
        if name in found:
            raise InputError(f"--set {name} is given twice")
        found[name] = value
    return found


def settable(rung: Rung) -> dict[str, Any]:
    """Return the fields of the rung's configuration that may be set, with their values."""
    values = {field.name: getattr(rung.config, field.name) for field in fields(rung.config)}
    return {
        name: value
        for name, value in values.items()
        if name not in _FIXED and isinstance(value, int | str | tuple)
    }


def configured(rung: Rung, settings: Mapping[str, Any]) -> Rung:
    """Return the rung with other values in its configuration; texts are read as the field's type.

    Raises UnknownNameError for a name that the configuration lacks, and InputError for a value of
    another type or one that breaks a rule of the configuration.
    """
    known = settable(rung)
    changes = {}
    for name, value in settings.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            values = ", ".join(f"{name}={text(value)}" for name, value in known.items())
            raise UnknownNameError(f"{rung.name} has no setting {name!r}; it has {values}.{hint}")
        changes[name] = _typed(name, value, known[name])
    if not changes:
        return rung
    given = " ".join(f"{name}={text(value)}" for name, value in changes.items())
    try:
        config = replace(rung.config, **changes)
        axes = problems.find(rung.problem).axes
        _, block, smem = rung.geometry(config, dict.fromkeys(axes, 1))
        threads = math.prod(block)
        require(0 < threads <= MAX_THREADS, f"{threads} threads per block, must be 1 to 1024")
        warps = -(-threads // 32) * getattr(config, "min_blocks", 1)
        rule = f"min_blocks × warps per block is {warps}, at most {_MAX_WARPS} fit"
        require(warps <= _MAX_WARPS, rule)
        require(smem <= MAX_SMEM, f"{smem} bytes of shared memory, at most {MAX_SMEM} are allowed")
    except InputError as error:
        raise InputError(f"{rung.name} with {given}: {error}") from None
    different = {name: value for name, value in changes.items() if value != known[name]}
    return replace(rung, config=config, settings={**rung.settings, **different})


def text(value: Any) -> str:
    """Return a value as --set takes it: 64, plain, or 104,200."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def candidates(rung: Rung) -> list[Rung]:
    """Return the rung in its own configuration, then in all others that it names and its rules
    permit: those with the fewest changes first."""
    names = list(rung.choices)
    found: dict[tuple[Any, ...], Rung] = {}
    for values in product(*rung.choices.values()):
        try:
            made = configured(rung, dict(zip(names, values, strict=True)))
        except InputError:
            continue
        found[values] = made
    own = [made for made in found.values() if made.config == rung.config]
    others = [made for made in found.values() if made.config != rung.config]
    return (own or [rung]) + sorted(others, key=lambda made: len(made.settings))


def _typed(name: str, value: Any, like: Any) -> Any:
    """Return a value with the type of the value that it replaces."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        if isinstance(like, tuple):
            found: Any = tuple(int(part) for part in parts)
            right = len(found) == len(like)
        elif isinstance(like, bool):
            found = {"true": True, "false": False}.get(str(value).lower())
            right = found is not None
        elif isinstance(like, int):
            found, right = int(value), True
        else:
            found, right = str(value), True
    except (TypeError, ValueError):
        right = False
    if not right:
        kind = f"{len(like)} integers" if isinstance(like, tuple) else "an integer"
        rule = "true or false" if isinstance(like, bool) else f"{kind} such as {text(like)}"
        raise InputError(f"{name} is {value!r}, must be {rule}")
    if isinstance(found, int) and not isinstance(found, bool):
        least = min(like, 1)
        rule = f"{name} = {found}, must be {least} to {_INT32 - 1}"
        require(least <= found < _INT32, rule)
    return found
