"""The checks of products on meshes, by subject; importing this registers them."""

from mesh_checks import failures, measured, pieces, placing, pytorch
from mesh_checks.common import CHECKS

__all__ = ["CHECKS", "failures", "measured", "pieces", "placing", "pytorch"]
