"""Files by content, kept at the site for all submissions that read them.

    cache/<aa>/<sha256>              content that was checked; read-only
    cache/<aa>/<name>.<mark>.part    content that arrives, or whose sender was cut off
    cache/<aa>/<name>.is             the digest of what the hub calls by another name

A *name* is 64 hexadecimal digits, as a digest is: the hub makes one of a path and of a version of
a file, so that it finds them again without reading them. `<aa>` are the first two digits.
The time of last access is set by us, whatever the file system does, and says when one was used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

#: Bytes of a block, by which parts and earlier versions are compared; doubled for huge files.
STEP = 4 << 20
#: Blocks of one file, at most: their hashes must fit into a frame.
MOST_BLOCKS = 1 << 16
#: A file that was used so lately may be about to be linked; a part may still be arriving.
GRACE_S = 600.0
PART_S = 86400.0

_NAME = re.compile("[0-9a-f]{64}")
_PART = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{1,32}\.part")


def place(root: str, name: str) -> str:
    """Return where content of a digest is, or would be."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no digest")
    return os.path.join(root, "cache", name[:2], name)


def part(root: str, name: str, found: str = "") -> str:
    """Return where a part is, or where a new one is to be."""
    found = found or f"{name}.{uuid.uuid4().hex}.part"
    if not _PART.fullmatch(found) or not found.startswith(f"{name}."):
        raise ValueError(f"{found!r} is no part of {name}")
    return f"{place(root, name)}{found[len(name) :]}"


def have(root: str, digests: Iterable[str]) -> dict[str, Any]:
    """Return which are here, under their digest or another name, and what is here in part."""
    there: list[str] = []
    same: dict[str, str] = {}
    parts: dict[str, Any] = {}
    for name in digests:
        if use(root, name):
            there.append(name)
        elif known := meaning(root, name):
            same[name] = known
        elif found := _largest(root, name):
            with contextlib.suppress(OSError):
                parts[name] = {"part": os.path.basename(found), **sums(found)}
    return {"have": there, "same": same, "parts": parts}


def sums(path: str) -> dict[str, Any]:
    """Hash each whole block of a file."""
    step, found = STEP, []
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        while size // step > MOST_BLOCKS:
            step *= 2
        for _ in range(size // step):
            digest = _block(file.fileno(), step)
            if digest is None:
                break
            found.append(digest)
    return {"size": size, "step": step, "blocks": found}


def use(root: str, digest: str) -> bool:
    """Note that a file is used now; return whether it is here."""
    path = place(root, digest)
    try:
        os.utime(path, ns=(time.time_ns(), os.stat(path).st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def meaning(root: str, name: str) -> str:
    """Find the digest that a name stands for, if that is here; empty if not."""
    try:
        with open(f"{place(root, name)}.is", encoding="ascii", errors="replace") as file:
            digest = file.read(len(name) + 1)
    except FileNotFoundError:
        return ""
    return digest if _NAME.fullmatch(digest) and use(root, digest) else ""


def call(root: str, name: str, digest: str) -> None:
    """Record the digest of a name."""
    target = f"{place(root, name)}.is"
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    fresh = f"{target}.{uuid.uuid4().hex}"
    with open(fresh, "w", encoding="ascii") as file:
        file.write(digest)
    os.replace(fresh, target)


def sweep(root: str, bound: int) -> dict[str, int]:
    """Remove what was used longest ago, and is linked by no submission, until the rest fits."""
    now = time.time()
    kept, total, freed = [], 0, 0
    for entry in _entries(root):
        with contextlib.suppress(FileNotFoundError):
            facts = entry.stat(follow_symlinks=False)
            if _NAME.fullmatch(entry.name):
                total += facts.st_size
                kept.append((facts.st_atime, facts.st_nlink, facts.st_size, entry.path))
            elif facts.st_mtime < now - PART_S and _useless(root, entry.name):
                os.unlink(entry.path)
                freed += facts.st_size
            else:
                total += facts.st_size
    count = 0
    for used, links, size, path in sorted(kept):
        if total <= bound or used > now - GRACE_S:
            break
        if links == 1:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                total, freed, count = total - size, freed + size, count + 1
    return {"evicted": count, "freed": freed, "size": total}


def _useless(root: str, name: str) -> bool:
    """Return whether an old file can go: a part, or a name of what is no longer here."""
    head, _, kind = name.partition(".")
    return not (_NAME.fullmatch(head) and kind == "is" and meaning(root, head))


def _block(file: int, step: int) -> str | None:
    """Hash the next block; nothing if the file ends before."""
    digest, left = hashlib.sha256(), step
    while left:
        data = os.read(file, min(left, 1 << 20))
        if not data:
            return None
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()


def _largest(root: str, name: str) -> str:
    """Find the part of a name that got furthest; empty if there is none."""
    folder = os.path.dirname(place(root, name))
    best, most = "", -1
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(f"{name}.") and _PART.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):
                    size = entry.stat(follow_symlinks=False).st_size
                    best, most = (entry.path, size) if size > most else (best, most)
    return best


def _entries(root: str) -> Iterator[os.DirEntry[str]]:
    top = os.path.join(root, "cache")
    with contextlib.suppress(FileNotFoundError):
        for folder in os.listdir(top):
            path = os.path.join(top, folder)
            with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
                yield from entries
