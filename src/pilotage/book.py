"""What a book of rules in Python needs.

from pilotage.book import rule

@rule(files="raw/*.csv")
def clean(path): ...
"""

from __future__ import annotations

from pilotage.rule.python import recipe, rule

__all__ = ["recipe", "rule"]
