"""What `[plugin]` of the site's file says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

#: Names of objects, of namespaces and of contexts.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._@:/-]*[A-Za-z0-9])?")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How jobs run in the cluster."""

    #: Container image of pilots; it has a shell and Python 3.9 or newer.
    image: str
    #: Where pods have the folder of the site: the same path as where `kubectl` runs.
    mount: str
    #: The persistent volume claim that is mounted there; empty means the path of each node.
    claim: str = ""
    namespace: str = ""
    context: str = ""
    service_account: str = ""
    #: User and group that pods run as; below 0 means those of the image.
    user: int = -1
    group: int = -1
    kubectl: str = "kubectl"

    def __post_init__(self) -> None:
        """Refuse what would be no name, or an option."""
        if not self.mount.startswith("/"):
            raise ValueError(f"mount: {self.mount!r} is no absolute path")
        for key in ("claim", "namespace", "context", "service_account"):
            value = getattr(self, key)
            if value and not _NAME.fullmatch(value):
                raise ValueError(f"{key}: {value!r} is no name")

    @property
    def argv(self) -> tuple[str, ...]:
        """The program, and what all its calls have in common."""
        options = []
        if self.context:
            options.append(f"--context={self.context}")
        if self.namespace:
            options.append(f"--namespace={self.namespace}")
        return (self.kubectl, *options)


def read(given: Mapping[str, Any]) -> Settings:
    """Read the table; what it does not know is a mistake."""
    return msgspec.convert(dict(given), Settings)
