"""Facts and models of GPUs: specifications, launch limits, occupancy."""

from gemmlab.hardware.limits import check_launch
from gemmlab.hardware.occupancy import Occupancy, occupancy
from gemmlab.hardware.specs import ARCHITECTURES, GPUS, Architecture, Gpu, architecture

__all__ = [
    "ARCHITECTURES",
    "GPUS",
    "Architecture",
    "Gpu",
    "Occupancy",
    "architecture",
    "check_launch",
    "occupancy",
]
