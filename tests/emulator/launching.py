"""Fixtures that run short PTX kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from snippets import STORAGE, ptx

from gemmlab.emulator import Run, run

Launcher = Callable[..., Run]


@pytest.fixture
def tier() -> str:
    """The tier that `launch` runs on. Modules may override it to run on all TIERS."""
    return "auto"


@pytest.fixture
def launch(tier: str) -> Launcher:
    """Run a PTX body with the given arrays and numbers as %q0, %q1, … ; numbers are 32-bit.

    %r0 is the thread's linear index in the grid, %q31 four times that index.
    """

    def start(
        body: str,
        args: Sequence[Any] = (),
        grid: int | tuple[int, int, int] = 1,
        block: int | tuple[int, int, int] = 32,
        module: str = "",
        dynamic_smem: int = 0,
        order: str | int = "in-order",
        cluster: int = 1,
    ) -> Run:
        types = ["u64" if isinstance(x, np.ndarray) else "u32" for x in args]
        loads = [
            f"ld.param.u64 %q{i}, [p{i}];"
            if t == "u64"
            else f"ld.param.u32 %r31, [p{i}]; cvt.u64.u32 %q{i}, %r31;"
            for i, t in enumerate(types)
        ]
        grid = grid if isinstance(grid, tuple) else (grid, 1, 1)
        block = block if isinstance(block, tuple) else (block, 1, 1)
        index = (
            "mov.u32 %r30, %ctaid.x; mov.u32 %r29, %ntid.x; mov.u32 %r28, %tid.x; "
            "mad.lo.u32 %r0, %r30, %r29, %r28; mul.wide.u32 %q31, %r0, 4;"
        )
        text = ptx("\n".join([*loads, index, body, "ret;"]), types, module)
        chosen = tier if (order, cluster) == ("in-order", 1) else "numpy"
        return run(text, "k", grid, block, args, dynamic_smem, order, (cluster, 1, 1), tier=chosen)

    return start


@pytest.fixture
def compute() -> Callable[..., list[np.ndarray]]:
    """Run `body` on registers %a, %b, … that hold one element of each input per lane; return the
    final values of %x, %y, … . `uniform`: the inputs are single values that all lanes share."""

    def start(
        body: str,
        inputs: Sequence[tuple[str, np.ndarray]],
        outputs: Sequence[str],
        uniform: bool = False,
    ) -> list[np.ndarray]:
        lanes = 32 if uniform else inputs[0][1].size
        results = [np.zeros(lanes, STORAGE[t][2]) for t in outputs]
        code = [".reg .u32 %tid;", "mov.u32 %tid, %tid.x;"]
        parameters, args = list[str](), list[Any]()
        for (type_, values), name in zip(inputs, "abcde", strict=False):
            register, access, numpy_type = STORAGE[type_]
            n = len(args)
            code.append(f".reg .{register} %{name};")
            values = values.astype(numpy_type) if type_ != "f16" else values.view("u2")
            if uniform:
                parameters.append(access)
                args.append(values.reshape(-1)[0])
                code.append(f"ld.param.{access} %{name}, [p{n}];")
                continue
            parameters.append("u64")
            args.append(values)
            code.append(f"ld.param.u64 %q0, [p{n}];")
            code.append(f"mad.wide.u32 %q0, %tid, {values.itemsize}, %q0;")
            code.append(f"ld.global.{access} %{name}, [%q0];")
        for type_, name in zip(outputs, "xyz", strict=False):
            code.append(f".reg .{STORAGE[type_][0]} %{name};")
        code.append(body)
        for type_, name, result in zip(outputs, "xyz", results, strict=False):
            access, source = STORAGE[type_][1], f"%{name}"
            if type_ == "pred":
                code.append(f"selp.u32 %r0, 1, 0, %{name};")
                access, source = "u32", "%r0"
            parameters.append("u64")
            code.append(f"ld.param.u64 %q0, [p{len(args)}];")
            code.append(f"mad.wide.u32 %q0, %tid, {result.itemsize}, %q0;")
            code.append(f"st.global.{access} [%q0], {source};")
            args.append(result)
        run(ptx("\n".join([*code, "ret;"]), parameters), "k", (1, 1, 1), (lanes, 1, 1), args)
        return results

    return start
