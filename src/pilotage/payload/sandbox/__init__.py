"""Sandboxes of payloads: an order comes in, the command that runs it isolated goes out.

`wrap` turns an order to start a payload into what is started in its place. Each kind has a module
that knows its command line; `keeper` is the process beside those that cannot be killed from
outside; `gatekeeper` is the program that a site's administrator installs for the kind `user`.
Like the starter, all of this travels to worker nodes and needs only the standard library.
"""

from __future__ import annotations

from .box import NotPossibleError, Wrapped
from .probe import KINDS, THREATS, available, protects, words
from .reach import exit_code, resident, signal_inside
from .wrap import wrap

__all__ = [
    "KINDS",
    "THREATS",
    "NotPossibleError",
    "Wrapped",
    "available",
    "exit_code",
    "protects",
    "resident",
    "signal_inside",
    "words",
    "wrap",
]
