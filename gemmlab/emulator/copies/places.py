"""The sources and targets of bulk copies: bytes of memory, registers, and boxes of tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmlab.core.tensor_map import CHUNK
from gemmlab.emulator.copies.tensor_maps import Descriptor, Region, to_tfloat32


@dataclass
class Bytes:
    """Contiguous bytes of memory."""

    view: np.ndarray

    def read(self) -> np.ndarray:
        return self.view

    def write(self, data: np.ndarray) -> None:
        self.view[:] = data


@dataclass
class Words:
    """Register values that a thread sends with st.async or red.async."""

    data: np.ndarray

    def read(self) -> np.ndarray:
        return self.data


@dataclass
class SharedBox:
    """A box in the shared memory of one block, in 16-byte chunks."""

    rows: np.ndarray  # all shared memory of the block, (chunks, 16) uint8
    chunks: np.ndarray  # chunk numbers of the box, in the order of its elements

    def read(self) -> np.ndarray:
        data: np.ndarray = self.rows[self.chunks].reshape(-1)
        return data

    def write(self, data: np.ndarray) -> None:
        self.rows[self.chunks] = data.reshape(-1, CHUNK)


@dataclass
class TensorBox:
    """A box of a tensor in global memory, possibly extending outside the tensor."""

    descriptor: Descriptor
    region: Region
    view: np.ndarray  # the elements inside the tensor

    @property
    def sectors(self) -> int:
        """Number of 32-byte sectors that the rows of the box touch."""
        return self.region.sectors(self.descriptor.address)

    def read(self) -> np.ndarray:
        box, inside = self.descriptor.empty_box(), self.view
        if self.descriptor.format == "tfloat32":
            inside = to_tfloat32(inside)
        box[self.region.place] = inside
        return box.reshape(-1).view(np.uint8)

    def write(self, data: np.ndarray) -> None:
        box = data.view(self.descriptor.dtype).reshape(self.descriptor.counts[::-1])
        self.view[...] = box[self.region.place]
