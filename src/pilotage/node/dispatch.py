"""Choose the program of the archive by its first argument."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run the program that the first argument names; each imports only what it needs."""
    given = list(sys.argv[1:] if words is None else words)
    first, rest = (given[0], given[1:]) if given else ("", [])
    if first == "job":
        from .batchjob import program as job

        return job.main(rest)
    if first == "hand":
        from .login import program as hand

        return hand.main(rest)
    if first == "receive":
        from .login import receive

        return receive.main(rest)
    if first == "send":
        from .login import send

        return send.main(rest)
    if first == "local":
        from .queue import program as local

        return local.main(rest)
    from . import program

    return program.main(given)
