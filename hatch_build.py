"""Hatchling's build hook: a release has the kernels of gemmlab.matmul that are built in this tree.

`scripts/build-kernels` builds them. No compiler runs here, so `pip install .` needs none. Without
built kernels, gemmlab compiles a kernel when it is first used, which needs the extra "lab".
"""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Refuse kernels that were built from other sources, or with another compiler."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from gemmlab.core import built

        folders = [path.parent for path in Path(self.root).glob("gemmlab/built/*/manifest.json")]
        if not folders:
            self.app.display_warning("no kernels are built: run scripts/build-kernels first")
        for folder in folders:
            pins = self.metadata.core.optional_dependencies["lab"]
            if problem := built.problem(folder, pins):
                self.app.abort(
                    f"{folder}: {problem}; run scripts/build-kernels again, or delete the folder"
                )
