"""Pack the pilot as one file that any Python of a node runs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from pilotage import node
from pilotage.base import durable
from pilotage.node import parts

#: The oldest time that an archive can hold: what is packed does not depend on when.
_TIME = (1980, 1, 1, 0, 0, 0)
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = '''"""Run the program that the first word names."""

import sys

if sys.argv[1:2] in (["job"], ["local"]):
    # The login helper may have left all of it here, compiled for this Python.
    sys.path.insert(0, f"{sys.path[0]}.{sys.implementation.cache_tag}")

from node.dispatch import main

sys.exit(main())
'''


def archive() -> bytes:
    """Return the archive: the same bytes whenever the same files are packed."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, text in sorted(_files().items()):
            facts = zipfile.ZipInfo(name, _TIME)
            facts.external_attr = 0o644 << 16
            facts.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(facts, text)
    return _SHEBANG + data.getvalue()


def write(target: Path) -> int:
    """Write the archive, whole or not at all; return its size."""
    data = archive()
    durable.write(target, data, mode=0o755)
    return len(data)


def _files() -> dict[str, bytes]:
    """Collect all files of the archive by name."""
    home = Path(node.__file__).parent
    payload = home.parent / "payload"
    found = {"__main__.py": _MAIN.encode()}
    folders = {"node": home, **{name: payload / name for name in parts.FOLDERS}}
    for name, folder in folders.items():
        for path in folder.rglob("*.py"):
            found[f"{name}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    for name in parts.FILES:
        found[name] = (payload / name).read_bytes()
    return found
