"""Which file systems hide from the kernel what other machines do to them."""

from __future__ import annotations

import re
from pathlib import Path

#: Types whose files other hosts or servers change; inotify sees only what this host does.
BLIND = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "lustre", "gpfs", "9p", "afs", "coda"),
        *("beegfs", "fhgfs", "ceph", "panfs", "pvfs2", "orangefs", "ocfs2", "gfs2", "glusterfs"),
        *("fuse", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "wekafs", "daos", "exafs", "quobyte"),
    }
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def read_mounts(table: str) -> dict[str, str]:
    """Return the type of the file system at each mount point of a `mountinfo` table."""
    types: dict[str, str] = {}
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:
            point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
            # The last mount on a point hides those before it.
            types[point] = after.split(" ", 1)[0]
    return types


def type_of(path: str, types: dict[str, str]) -> str:
    """Return the type of the file system that holds an absolute path."""
    place = path
    while place not in types:
        if place in {"/", ""}:
            return ""
        place = place.rpartition("/")[0] or "/"
    return types[place]


def is_blind(kind: str) -> bool:
    """Tell whether changes on a file system of this type can be hidden from inotify."""
    return kind in BLIND or kind.startswith("fuse.")


def blind(path: str) -> bool:
    """Tell whether inotify may miss changes at a path."""
    try:
        table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return False
    real = str(Path(path).resolve())
    return is_blind(type_of(real, read_mounts(table)))
