"""Lend GPUs to payloads: each sees those that it asked for, and no others."""

from __future__ import annotations

from collections.abc import Sequence

#: What programs of the makers of GPUs look at.
_NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class NoDevice(Exception):
    """There are not so many that are free."""


class Devices:
    """The GPUs of this node, and who has which."""

    def __init__(self, names: Sequence[str]) -> None:
        self._all = tuple(names)
        self._free = list(names)
        self._lent: dict[str, list[str]] = {}

    def lend(self, key: str, count: int) -> dict[str, str]:
        """Give a payload its GPUs; return the variables that tell it which."""
        if not self._all:
            return {}
        if count > len(self._free):
            raise NoDevice(f"{count} GPUs are asked for and {len(self._free)} are free")
        self._lent[key], self._free = self._free[:count], self._free[count:]
        return dict.fromkeys(_NAMES, ",".join(self._lent[key]))

    def take_back(self, key: str) -> None:
        """Get back what a payload had."""
        back = self._lent.pop(key, [])
        # In the order in which they are known, so that what is lent does not depend on the past.
        self._free = [one for one in self._all if one in self._free or one in back]
