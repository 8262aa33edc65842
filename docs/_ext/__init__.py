"""What these pages take from the code itself, so that they cannot go stale.

In: the nouns, settings, rules, errors and commands of `pilotage`. Out: Markdown, through the
directive `generated`; `tests/unit/repository/test_docs.py` reads the same facts.
"""
