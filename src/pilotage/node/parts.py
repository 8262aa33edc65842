"""Put the programs that payloads need into the pilot's folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile

#: What travels beside this package: files, and folders of Python files.
FILES = ("call.py", "warm.py")
FOLDERS = ("starter", "sandbox")

_ASK_SECONDS = 60.0
_ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import sandbox
print(json.dumps(sandbox.available()))
"""


def unpack(work: str) -> None:
    """Copy the parts from the archive that runs, or from the package beside this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    archive = os.path.dirname(here)
    if os.path.isfile(archive):
        _from_archive(archive, work)
        return
    payload = os.path.join(archive, "payload")
    for name in FILES:
        if os.path.exists(os.path.join(payload, name)):
            shutil.copyfile(os.path.join(payload, name), os.path.join(work, name))
    for name in FOLDERS:
        if os.path.isdir(os.path.join(payload, name)):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(os.path.join(payload, name), os.path.join(work, name), ignore=ignored)


def sandboxes(work: str) -> list[str]:
    """Ask which sandboxes work here; none if that cannot be found out."""
    command = [sys.executable, "-I", "-S", "-c", _ASK, work]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=_ASK_SECONDS, check=True)
        # `none` always works and protects nothing, so it is no offer.
        return [str(name) for name in json.loads(answer.stdout) if name != "none"]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def _from_archive(archive: str, work: str) -> None:
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            if name in FILES or name.split("/", 1)[0] in FOLDERS:
                packed.extract(name, work)
