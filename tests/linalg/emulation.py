"""Launches of a plan on the emulator: device memory is NumPy arrays at made-up addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gemmlab.core.tensor_map import TensorMap
from gemmlab.devices.emulated import emulate
from gemmlab.kernels.gemm.sm90.config import LINE
from gemmlab.linalg.planning.plan import Launch, Map
from gemmlab.linalg.planning.program import Source
from gemmlab.linalg.runtime.kernels import arguments, artifact_of

PAGE = 4096


class Memory:
    """Arrays by address."""

    def __init__(self, **checks: Any) -> None:
        """checks: `check` and `order` of the emulator; then nothing may be found."""
        self._arrays: dict[int, np.ndarray] = {}
        self._end = 1 << 20
        self._checks = checks

    def place(self, array: np.ndarray) -> int:
        """Where kernels find the array; it must stay alive."""
        address = self._end
        self._arrays[address] = array.reshape(-1).view(np.uint8)
        self._end += (array.nbytes // PAGE + 2) * PAGE
        return address

    def at(self, address: int) -> np.ndarray | int:
        """The bytes from an address on; a number that is no address of an array stays one."""
        for start, raw in self._arrays.items():
            if start <= address < start + raw.nbytes:
                return raw[address - start :]
        return address

    def run(self, launch: Launch) -> None:
        """Run one launch to its end."""
        artifact = artifact_of(launch)
        maps = [self._tensor_map(wanted) for wanted in launch.maps]
        given = zip(artifact.parameters[len(maps) :], arguments(launch, artifact), strict=True)
        args = [self._argument(x) if p.is_pointer else x for p, x in given]
        run = emulate(
            artifact,
            grid=launch.grid,
            block=launch.block,
            args=[*maps, *args],
            dynamic_smem=launch.dynamic_smem,
            cluster=(launch.cluster, 1, 1),
            **self._checks,
        )
        assert not run.findings, [str(finding) for finding in run.findings]

    def _argument(self, value: float) -> np.ndarray | float:
        """The memory at an address; another number is what it is."""
        found = self.at(int(value))
        return value if found is None else found

    def _tensor_map(self, wanted: Map) -> TensorMap:
        raw = self.at(wanted.address)
        assert isinstance(raw, np.ndarray)
        lengths, strides = wanted.shape, wanted.strides
        array = np.lib.stride_tricks.as_strided(
            raw.view(np.uint16), lengths[::-1], (strides[1], strides[0], 2)
        )
        box = (1, wanted.copy.lines, LINE)
        return TensorMap(array, box, "128B", format=wanted.copy.dtype)


def placed(launch: Launch, addresses: dict[str, int]) -> Launch:
    """The launch with the caller's arrays at these addresses."""
    given = launch.args.items()
    args = {name: addresses[x.name] if isinstance(x, Source) else x for name, x in given}
    return replace(launch, args=args)
