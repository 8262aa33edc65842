"""Checks that a program is still the one that the site's administrator chose.

It must have the recorded SHA-256, belong to root or to us, and neither it nor any folder above it
may be writable by others, who could replace the program.
"""

from __future__ import annotations

import hashlib
import os
import stat

from pilotage.agent.app.model import Application
from pilotage.base import errors
from pilotage.data.transfer.version import Version

#: Maximal number of links to follow.
_MOST_LINKS = 40


def digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from None


def exposed(path: str) -> str:
    """Return who else could change or replace a file; empty if no one could."""
    todo, links = path, 0
    while True:
        for one in _chain(todo):
            try:
                facts = os.lstat(one)
            except OSError as error:
                return f"{one}: {error.strerror}"
            if reason := _loose(one, facts):
                return reason
            if stat.S_ISLNK(facts.st_mode):
                links += 1
                rest = todo[len(one) :]
                todo = os.path.join(os.path.dirname(one), os.readlink(one)) + rest
                todo = os.path.normpath(todo)
                break
        else:
            return ""
        if links > _MOST_LINKS:
            return f"{path}: its links lead nowhere"


def _chain(path: str) -> list[str]:
    """Return all folders above a path from the root on, and itself."""
    parts = [part for part in path.split("/") if part]
    return ["/", *("/" + "/".join(parts[: at + 1]) for at in range(len(parts)))]


def _loose(path: str, facts: os.stat_result) -> str:
    if facts.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {facts.st_uid}, neither to root nor to us"
    if stat.S_ISLNK(facts.st_mode):
        return ""  # its mode means nothing
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        # In a folder such as /tmp others may add files, but not move or remove ours.
        if stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX:
            return ""
        return f"{path} can be written by others (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""


class Trust:
    """Checks programs at each use; unchanged files are not read again."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._known: dict[str, tuple[Version, str]] = {}

    def reasons(self, app: Application) -> list[str]:
        """Return the problems of the programs of an application."""
        found = [self._why_not(path, sha256) for path, sha256 in app.programs().items()]
        return [reason for reason in found if reason]

    def require(self, app: Application) -> None:
        """Raise `Denied` if a program of an application is not to be trusted."""
        if reasons := self.reasons(app):
            hint = "the site's administrator must check it: `pilotage app test NAME`"
            raise errors.Denied("; ".join(reasons), hint=hint)

    def _why_not(self, path: str, sha256: str) -> str:
        if reason := exposed(path):
            return reason
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or not facts.st_mode & 0o111:
            return f"{path} is not a program"
        if self._digest(path, facts) != sha256:
            return f"{path} is not the program that was registered: its SHA-256 differs"
        return ""

    def _digest(self, path: str, facts: os.stat_result) -> str:
        now = Version.of(facts)
        known = self._known.get(path)
        if known is None or known[0] != now:
            known = self._known[path] = (now, digest(path))
        return known[1]
