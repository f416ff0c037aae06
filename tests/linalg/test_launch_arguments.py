"""The arguments of a launch reach its kernel by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmlab.compile.artifact import Artifact, ParameterType
from gemmlab.errors import InternalError
from gemmlab.linalg.planning.launch import PlannedLaunch
from gemmlab.linalg.runtime.kernels import arguments

ARTIFACT = Artifact(
    "k",
    "",
    "sm_90a",
    tuple(ParameterType("u64", 8, 8, True, name) for name in ("x", "out", "n")),
)
LAUNCH = PlannedLaunch("pack_k_major", None, (1, 1, 1), (32, 1, 1), {"n": 3, "out": 2, "x": 1})


def test_arguments_come_in_the_order_of_the_kernel() -> None:
    assert arguments(LAUNCH, ARTIFACT) == (1, 2, 3)


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        ({"n": 3, "x": 1}, "out"),
        ({"n": 3, "out": 2, "x": 1, "m": 4}, "m"),
        ({"n": 3, "outs": 2, "x": 1}, "out, outs"),
    ],
)
def test_a_name_too_few_or_too_many_is_an_error(args: dict[str, int], wrong: str) -> None:
    with pytest.raises(InternalError, match=f"a launch of pack_k_major .* parameters: {wrong}$"):
        arguments(replace(LAUNCH, args=args), ARTIFACT)
