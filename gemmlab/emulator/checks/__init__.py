"""Dynamic checks for races, missing synchronization, uninitialized reads and other bugs that need
not show in the results. See `gemmlab docs checks`."""

from gemmlab.emulator.checks.findings import CHECKS, Finding
from gemmlab.emulator.checks.launch import Checks, kinds_of, run_checked
from gemmlab.emulator.checks.monitor import Monitor
from gemmlab.emulator.checks.outputs import Output

__all__ = ["CHECKS", "Checks", "Finding", "Monitor", "Output", "kinds_of", "run_checked"]
