"""Another user of the operating system, through a gatekeeper that runs as root."""

from __future__ import annotations

import json
import os

from . import view
from .box import Box, NotPossibleError, Wrapped
from .keeper import USER, kept
from .rule import GATEKEEPER, is_name

_PASSED = ("HOME", "LANG", "PATH", "USER")


def wrap(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start a keeper that calls the gatekeeper and holds the line to it."""
    if box.user and not is_name(box.user):
        raise NotPossibleError(f"{box.user!r} cannot be the name of a user to run it as")
    if not box.place:
        raise NotPossibleError("a worker that stays cannot run as another user")
    wish = {
        "dir": box.place,
        "cwd": box.cwd,
        "argv": box.argv,
        "env": {**box.env, **marks},
        "limits": box.limits,
        "scratch": box.scratch,
        "network": box.network,
        "shown": [one.path for one in view.asked(box) if one.path != box.place],
    }
    request = {
        "kind": "user",
        # If nobody is named, the keeper takes one of the rule whom no other payload has.
        "argv": ["sudo", "-n", "--", GATEKEEPER, "run", box.user or USER],
        "told": json.dumps(wish),
    }
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return kept(request, {**passed, **marks})
