"""How a kernel in somebody's file is called: the words at its top, and what they come to."""

from gemmlab.lab.directives.directive import Directive, read
from gemmlab.lab.directives.expressions import evaluate

__all__ = ["Directive", "evaluate", "read"]
