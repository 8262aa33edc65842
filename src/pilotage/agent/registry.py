"""The applications of the site, read again when their files change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pilotage.agent import shortage
from pilotage.agent.app import files, hosts, policy
from pilotage.agent.app.model import Application
from pilotage.base import errors, toml
from pilotage.bus.model import BatchQueue
from pilotage.data.transfer.version import Version

#: Applications that a heartbeat names.
_MOST = 1000
#: What messages may name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}")


class Registry:
    """Finds applications by name; a file with a mistake cannot be used."""

    def __init__(self, root: Path) -> None:
        """Take the folder that has `apps/`."""
        self._root = root
        self._folder = root / files.FOLDER
        self._known: dict[str, tuple[Version, Application]] = {}

    def names(self) -> list[str]:
        """List applications, those with mistakes in their files too."""
        return files.names(self._root)

    def usable(self) -> tuple[str, ...]:
        """List applications that are enabled and have no mistakes in their files."""
        found = []
        for name in self.names():
            with contextlib.suppress(errors.PilotageError):
                if self.find(name).enabled:
                    found.append(name)
        return tuple(found[:_MOST])

    def carrying(self, *, dials: bool) -> tuple[str, ...]:
        """List those whose jobs may carry small inputs in their messages."""
        found = []
        for name in self.usable():
            with contextlib.suppress(errors.PilotageError):
                if hosts.carries(self.find(name).staging, dials=dials):
                    found.append(name)
        return tuple(found)

    def waits(self, queues: Sequence[BatchQueue], usual: str) -> dict[str, str]:
        """Return by application the jobs that would wait for ever in the existing queues."""
        found = {}
        for name in self.usable():
            with contextlib.suppress(errors.PilotageError):
                found[name] = "; ".join(policy.waits(self.find(name), queues, usual))
        return {name: words for name, words in found.items() if words}

    def rules(self, *others: object) -> str:
        """Return a digest of what decides on jobs: all applications, and `others`."""
        digest = hashlib.blake2b(digest_size=16)
        for name in self.usable():
            with contextlib.suppress(errors.PilotageError):
                digest.update(msgspec.json.encode((name, self.find(name))))
        digest.update(msgspec.json.encode(others))
        return digest.hexdigest()

    def find(self, name: str) -> Application:
        """Return an application; raise `NotFound`, or `ConfigError` if its file cannot be used.

        If only this machine cannot read it now, that is `Unavailable`.
        """
        if not _NAME.fullmatch(name):
            raise errors.NotFound(f"there is no application {name!r}")
        try:
            with shortage.waits():
                return self._read(name, f"{self._folder}/{name}{toml.SUFFIX}")
        except OSError as error:
            message = f"the application `{name}` cannot be read: {error.strerror}"
            raise errors.ConfigError(message) from error

    def _read(self, name: str, file: str) -> Application:
        try:
            facts = os.stat(file)
        except FileNotFoundError:
            self._known.pop(name, None)
            return files.read(self._root, name)
        now = Version.of(facts)
        known = self._known.get(name)
        if known is None or known[0] != now:
            app = files.read(self._root, name)
            if reason := files.exposed(os.path.realpath(file)):
                hint = "only its owner may write it, since it decides what runs here: `chmod go-w`"
                raise errors.ConfigError(reason, hint=hint)
            known = self._known[name] = (now, app)
        return known[1]
