"""Where the files of a connection are: its socket, its settings, its lock, its last trouble."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import BinaryIO

import msgspec

from pilotage.base import durable, errors
from pilotage.batch.shell.words import Trouble

#: The kernel takes 107 bytes; `ssh` adds 17 to the name while it makes the socket.
_LONGEST = 107 - 17
_PLAIN = re.compile(r"[A-Za-z0-9_./+-]+")

#: Holds for jump hosts, too: `ssh` hands its settings file on, but not its options.
_SETTINGS = """\
Host *
    StrictHostKeyChecking {check}
    BatchMode {batch}
    ForwardAgent no
    ForwardX11 no
    PermitLocalCommand no
    ServerAliveInterval 15
    ServerAliveCountMax 3
    ConnectTimeout 20
{include}
"""


class Nest:
    """The files of one connection."""

    def __init__(self, state: Path, host: str, settings: str) -> None:
        """Take the folder that they are in, the host and the user's settings file."""
        # A home directory may be shared by machines, a socket cannot.
        told = "\0".join((str(state), host, settings, socket.gethostname()))
        stem = hashlib.sha256(told.encode()).hexdigest()[:12]
        folder = _folder(state, f"{stem}.sock")
        self.socket = str(folder / f"{stem}.sock")
        self._note = folder / f"{stem}.json"
        self._stem = folder / stem
        self._user = settings

    def settings(self, *, attended: bool) -> str:
        """Write the settings of a connection, and return their file."""
        files = [os.path.expanduser(self._user)] if self._user else []
        files = files or [os.path.expanduser("~/.ssh/config"), "/etc/ssh/ssh_config"]
        for file in files:
            if self._user and not os.access(file, os.R_OK):
                message = f"`ssh_config` is `{file}`, which cannot be read"
                raise errors.ConfigError(message)
        wanted = _SETTINGS.format(
            check="ask" if attended else "yes",
            batch="no" if attended else "yes",
            include="\n".join(f'Include "{file}"' for file in files),
        )
        target = self._stem.with_suffix(".attended" if attended else ".conf")
        if not target.exists() or target.read_text() != wanted:
            durable.swap(target, wanted)
        return str(target)

    def occupied(self) -> bool:
        """Say whether there is a socket, be it a dead one."""
        return os.path.exists(self.socket)

    def clear(self) -> None:
        """Take a dead connection's socket away: `ssh` would go on without one beside it."""
        Path(self.socket).unlink(missing_ok=True)

    def locking(self) -> BinaryIO:
        """Open the file whose lock lets one process at a time make or end the connection."""
        return open(self._stem.with_suffix(".lock"), "ab")

    def fifo(self) -> str:
        """Make a pipe with a name."""
        path = tempfile.mktemp(prefix="log-", dir=self._stem.parent)  # noqa: S306 - mkfifo is exclusive
        os.mkfifo(path, 0o600)
        return path

    def note(self, trouble: Trouble | None) -> None:
        """Keep why there is no connection, for whoever asks later."""
        if trouble is None:
            self._note.unlink(missing_ok=True)
        else:
            self._note.write_bytes(msgspec.json.encode(trouble))

    def trouble(self) -> Trouble | None:
        """Read why there was no connection at the last try."""
        try:
            return msgspec.json.decode(self._note.read_bytes(), type=Trouble)
        except (OSError, msgspec.DecodeError):
            return None


def _folder(state: Path, name: str) -> Path:
    """Return the first folder of ours in which a socket can be."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    wanted = [state / "ssh", Path(tempfile.gettempdir()) / f"pilotage-{os.getuid()}"]
    if runtime:
        wanted.insert(1, Path(runtime) / "pilotage")
    for folder in wanted:
        path = str(folder / name)
        if len(os.fsencode(path)) <= _LONGEST and _PLAIN.fullmatch(path) and _ours(folder):
            return folder
    message = f"no folder for the socket of a connection: none of {', '.join(map(str, wanted))}"
    raise errors.Unavailable(message, hint="it must be yours alone, and its path short")


def _ours(folder: Path) -> bool:
    """Make a folder that only we may look into, and say whether sockets can be there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or facts.st_mode & 0o170077 != 0o040000:
            return False
        probe = tempfile.mktemp(prefix="probe-", dir=folder)  # noqa: S306 - bind is exclusive
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(probe)
        os.unlink(probe)
    except OSError:
        return False
    return True
