"""Directives: comments in a kernel file that say how to launch its kernel."""

from gemmlab.compile.directive import Directive, read
from gemmlab.core.expressions import evaluate

__all__ = ["Directive", "evaluate", "read"]
