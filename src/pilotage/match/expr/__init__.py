"""Requirement and rank expressions over a job and an offer: text comes in, a value comes out.

Logic has three values: what is not known is `undefined`, which is neither true nor false.
Evaluating never fails and always ends; nothing of Python runs but closures of this package.
"""

from pilotage.match.expr.model import Expr, clauses, parse
from pilotage.match.expr.value import Attributes, Value

__all__ = ["Attributes", "Expr", "Value", "clauses", "parse"]
