"""Import packages that are packed or installed beside this one."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

#: The package above both; empty in an archive, where all are on top.
_ABOVE = __name__.rpartition(".node.")[0]


def module(name: str) -> ModuleType:
    """Load a module such as `starter.loop`."""
    return importlib.import_module(f"{_ABOVE}.payload.{name}" if _ABOVE else name)


def data(name: str) -> bytes:
    """Read a file such as `call.py`."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    loader = globals().get("__loader__")
    if not _ABOVE and loader is not None and hasattr(loader, "get_data"):
        return bytes(loader.get_data(os.path.join(above, name)))
    with open(os.path.join(above, "payload", name), "rb") as file:
        return file.read()
