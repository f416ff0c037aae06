"""Checks: what a kernel does wrong that its results need not show. See `gemmlab docs checks`."""

from gemmlab.emulator.checks.findings import CHECKS, Finding
from gemmlab.emulator.checks.launch import Checks, kinds_of, run_checked
from gemmlab.emulator.checks.monitor import Monitor

__all__ = ["CHECKS", "Checks", "Finding", "Monitor", "kinds_of", "run_checked"]
