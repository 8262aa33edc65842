"""The program compiled for the Python that runs it, so that each job begins sooner.

It lies beside the archive under a name that tells for which Python; another one does without.
"""

from __future__ import annotations

import os
import py_compile
import sys
import tempfile
import zipfile

from .. import durable

#: What jobs have no use for.
_LEFT_OUT = ("__main__.py", "node/hand/")


def make(archive: str) -> None:
    """Compile all of an archive that jobs need, once."""
    target = f"{archive}.{sys.implementation.cache_tag}"
    if os.path.exists(target):
        return
    try:
        with tempfile.TemporaryDirectory() as scratch:
            compiled = os.path.join(scratch, "compiled")
            with zipfile.ZipFile(archive) as packed, zipfile.ZipFile(compiled, "w") as made:
                for name in packed.namelist():
                    if not name.startswith(_LEFT_OUT):
                        made.writestr(*_entry(name, packed.read(name), scratch))
            with open(compiled, "rb") as file:
                data = file.read()
        durable.write(target, data, f"{target}.{os.getpid()}.part")
    except (OSError, py_compile.PyCompileError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"jobs will begin more slowly: {error}\n")


def _entry(name: str, data: bytes, scratch: str) -> tuple[str, bytes]:
    """Compile a module; what programs of others read stays as it is."""
    if "/" not in name:
        return name, data
    source, target = (os.path.join(scratch, f"module.{end}") for end in ("py", "pyc"))
    with open(source, "wb") as file:
        file.write(data)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(
        source, target, dfile=name, doraise=True, optimize=2, invalidation_mode=unchecked
    )
    with open(target, "rb") as file:
        return f"{name}c", file.read()
