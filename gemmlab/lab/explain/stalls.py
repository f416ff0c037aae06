"""Where the warps of a kernel spend their time, by machine instruction: measured or predicted.

The measured shares are Nsight Compute's: it samples, every so many cycles, at which instruction
each resident warp is, and why it does not issue. A reading belongs to machine code, not to a name:
it is shown for a kernel whose instructions are bit for bit those that were read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import ascii_lowercase
from typing import Any, NamedTuple

from gemmlab import timing
from gemmlab.compile.artifact import Artifact
from gemmlab.core.figures import times
from gemmlab.cubin.code import Instruction
from gemmlab.emulator.launch.launch import Dim3
from gemmlab.errors import GemmlabError
from gemmlab.timing.facts import disassemble

_FILES = ("stalls-h200.json", "stalls-h100.json")  # by the GPU that was read
_PREDICTED_FOR = "H200"
NONE = "."  # in place of a letter


@dataclass(frozen=True)
class Stalls:
    """Shares, of 1, of the time that warps are resident.

    about: "measured on …" or "predicted for …". by_address: per machine instruction, by its address
    in the kernel; a warp is at the instruction that it issues next. reasons: of the whole kernel,
    the largest first, in Nsight Compute's words. main: the reason with the largest share of an
    instruction, by address.
    """

    about: str
    is_measured: bool
    by_address: Mapping[int, float]
    reasons: Mapping[str, float]
    main: Mapping[int, str]


def digest(code: Sequence[Instruction]) -> str:
    """Return what identifies machine code. The instructions need their bits."""
    return hashlib.sha256(b"".join(one.word.to_bytes(16, "little") for one in code)).hexdigest()


def measured(artifact: Artifact) -> Stalls | None:
    """Return the reading of an artifact's machine code, or None."""
    if artifact.cubin is None:
        return None
    code = disassemble(artifact.cubin, artifact.entry).instructions
    raw = _readings().get(digest(code))
    return None if raw is None else _reading(raw, [one.address for one in code])


def all_stalls() -> tuple[tuple[str, str, Stalls], ...]:
    """Return all readings, with problem and rung; their instructions are numbered from 0."""
    return tuple(
        (raw["problem"], raw["rung"], _reading(raw, range(len(raw["samples"]))))
        for raw in _readings().values()
    )


def _reading(raw: dict[str, Any], addresses: Sequence[int]) -> Stalls:
    total, names = sum(raw["samples"]), raw["reasons"]
    # A letter per instruction: a is the reason with the most samples of the kernel.
    letters = dict(zip(ascii_lowercase, names, strict=False))
    letter_of = raw["main"]
    return Stalls(
        f"measured on {raw['gpu']} at {times(raw['shape'])}, {total:,} samples of warps",
        True,
        {at: count / total for at, count in zip(addresses, raw["samples"], strict=True) if count},
        _ordered({_words(name): count / total for name, count in names.items()}),
        {
            at: _words(letters[letter])
            for at, letter in zip(addresses, letter_of, strict=True)
            if letter != NONE
        },
    )


class Call(NamedTuple):
    """A launch as `gemmlab.emulate` takes it."""

    grid: Dim3
    block: Dim3
    args: Sequence[Any]
    dynamic_smem: int


def predicted(artifact: Artifact, call: Call) -> Stalls | None:
    """Return the simulated shares of a launch on an H200; None for a kernel beyond the model."""
    model = timing.model(_PREDICTED_FOR)
    if artifact.arch != model.target:
        return None
    try:
        found = timing.predict(artifact, *call, model)
    except GemmlabError:  # the kernel has been emulated, so the model is what it exceeds
        return None
    own = found.instructions
    return Stalls(
        f"predicted for {model.gpu.name}",
        False,
        {address: sum(of.values()) for address, of in own.items()},
        _ordered(found.stalls),
        {address: max(of, key=lambda name: of[name]) for address, of in own.items() if of},
    )


def stalls(artifact: Artifact, call: Call | None) -> Stalls | None:
    """Return the reading of a kernel if there is one, else the prediction for a launch."""
    return measured(artifact) or (predicted(artifact, call) if call else None)


def _ordered(shares: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _words(name: str) -> str:
    """Return a reason under the name that predictions use."""
    if name == "imc_miss":
        return "immediate constant"
    return " ".join({"mio": "MIO", "lg": "LG"}.get(word, word) for word in name.split("_"))


@cache
def _readings() -> dict[str, dict[str, Any]]:
    """Return the readings by the digest of their machine code, each with its GPU."""
    folder = resources.files(__package__)
    documents = [json.loads(folder.joinpath(name).read_text(encoding="utf-8")) for name in _FILES]
    return {
        one["words_sha256"]: one | {"gpu": document["gpu"]}
        for document in documents
        for one in document["readings"]
    }
