"""Choose how a payload is put into its sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import apptainer, bubblewrap, podman, user
from .box import NotPossibleError, Wrapped, box

_KINDS = {
    "apptainer": apptainer.wrap,
    "bubblewrap": bubblewrap.wrap,
    "podman": podman.wrap,
    "user": user.wrap,
}


def wrap(order: Mapping[str, Any], marks: Mapping[str, str] | None = None) -> Wrapped:
    """Turn an order into what is started in its place.

    `marks` are variables that both the payload and what is around it have, so that a process is
    known by them. Of the starter's own environment the payload gets nothing.
    """
    kind = order["sandbox"].get("kind", "none")
    if kind == "none":
        return Wrapped(list(order["argv"]), {**order["env"], **(marks or {})}, b"")
    if kind not in _KINDS:
        raise NotPossibleError(f"there is no kind of sandbox {kind!r}")
    return _KINDS[kind](box(order), dict(marks or {}))
