"""`gemmlab env`: list the versions, packages and hardware that gemmlab finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gemmlab.cli.options import AsJson

_NAMES = {
    "gpu_missing_because": "no GPU",
    "device_auto": "default device",
    "built_kernels": "built kernels",
    "native_tier": "native tier CPU",
    "native_tier_missing_because": "no native tier",
}


def env(
    as_json: AsJson = False,
) -> None:
    """Show the GPU, the packages, what is missing, and how to install it."""
    from rich.text import Text

    from gemmlab.lab import environment
    from gemmlab.report import tables

    found: dict[str, Any] = environment.report()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    out = tables.console()
    packages = found.pop("packages")
    out.print(tables.facts({_NAMES.get(k, k): str(value) for k, value in found.items() if value}))
    out.print()
    rows = [[p["name"], _state(p), p["purpose"]] for p in packages]
    out.print(tables.plain_table(["package", "version", "purpose"], rows))
    for package in packages:
        if package["trouble"]:
            out.print()
            out.print(Text(package["trouble"]))
    for command, names in _commands(packages).items():
        out.print()
        out.print(Text(f"{command}\n  installs or repairs {', '.join(names)}"), soft_wrap=True)


def _state(package: dict[str, str | None]) -> str:
    version = package["version"] or "–"
    return f"{version}, broken" if package["trouble"] else version


def _commands(packages: Sequence[dict[str, str | None]]) -> dict[str, list[str]]:
    """Return the install commands, each with the names of the packages that it installs."""
    by_command: dict[str, list[str]] = {}
    for package in packages:
        if package["install"]:
            by_command.setdefault(package["install"], []).append(str(package["name"]))
    return by_command
