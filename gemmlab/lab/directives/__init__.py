"""Directives: comments in a kernel file that say how to launch its kernel."""

from gemmlab.lab.directives.directive import Directive, read
from gemmlab.lab.directives.expressions import evaluate

__all__ = ["Directive", "evaluate", "read"]
