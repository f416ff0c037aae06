"""How a kernel in somebody's file is called: the words at its top, and what they come to."""

from gemmlab.directives.directive import Directive, read
from gemmlab.directives.expressions import evaluate

__all__ = ["Directive", "evaluate", "read"]
