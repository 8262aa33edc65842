"""How mounted data is reached: an order checked, and what `sshfs` and `ssh` are told."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from typing import Any

_CONNECT_SECONDS = 30

_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_USER = re.compile(r"[A-Za-z0-9_]+")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_KNOWN = re.compile(r"([A-Za-z0-9_.-]+) ssh-ed25519 [A-Za-z0-9+/=]+( [^\n]*)?")
_CHECKED = {"host": _HOST, "user": _USER, "token": _TOKEN, "known_hosts": _KNOWN}
#: What an order may add; everything else is decided here.
_OPTION = re.compile(
    r"allow_other|allow_root|auto_cache|kernel_cache|direct_io|no_readahead|sync_readdir"
    r"|disable_hardlink|compression=yes|max_conns=[1-8]|dcache_timeout=[0-9]{1,5}"
)
#: A server that went away is looked for again; programs and devices that come from elsewhere lend
#: nobody a right.
_OPTIONS = ("idmap=user", "reconnect", "nosuid", "nodev", "noatime", "fsname=pilotage")

_CONFIG = """Host *
    BatchMode yes
    CheckHostIP no
    ClearAllForwardings yes
    Compression no
    ConnectTimeout {seconds}
    ControlMaster no
    ControlPath none
    ForwardAgent no
    ForwardX11 no
    GlobalKnownHostsFile /dev/null
    HostKeyAlgorithms ssh-ed25519
    HostKeyAlias {alias}
    IdentitiesOnly yes
    IdentityAgent none
    IdentityFile "{folder}/key"
    LogLevel ERROR
    PermitLocalCommand no
    PreferredAuthentications publickey
    ProxyCommand {dial}
    ProxyUseFdpass yes
    ServerAliveCountMax 4
    ServerAliveInterval 15
    StrictHostKeyChecking yes
    UpdateHostKeys no
    UserKnownHostsFile "{folder}/known_hosts"
"""


# The first bytes name the folder, then SSH begins: `ssh` gets the connection itself.
_DIAL = """
import array, socket, sys
host, port, token = sys.argv[1:]
connection = socket.create_connection((host, int(port)), 30)
connection.settimeout(None)
with open(token, "rb") as file:
    connection.sendall(file.read())
given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))]
socket.socket(fileno=1).sendmsg([b" "], given)
"""


class NotMountedError(Exception):
    """The data cannot be mounted here; the text says why."""


def checked(mount: Mapping[str, Any], folder: str) -> str:
    """Refuse what would mean something else to the programs it is given to."""
    path = os.path.normpath(str(mount["path"]))
    if not os.path.isabs(path) or not path.startswith(os.path.normpath(folder) + os.sep):
        raise NotMountedError(f"{path} is not in the folder of this job")
    wrong = [
        name
        for name, pattern in _CHECKED.items()
        if not pattern.fullmatch(str(mount[name]).strip())
    ]
    if wrong or not 0 < int(mount["port"]) < 65536 or str(mount["host"]).startswith("-"):
        raise NotMountedError(
            f"the way to the data is not understood: {', '.join(wrong) or 'port'}"
        )
    bad = [option for option in mount.get("options") or () if not _OPTION.fullmatch(option)]
    if bad:
        raise NotMountedError(f"a mount cannot have the option {bad[0]!r}")
    return path


def source(mount: Mapping[str, Any], private: str) -> list[str]:
    """Write down how the data is reached; return the beginning of the command."""
    known, host = str(mount["known_hosts"]).strip(), str(mount["host"])
    port = str(int(mount["port"]))
    python = (sys.executable, "-I", "-S", f"{private}/dial")
    # In that file, `%` begins something that is filled in.
    config = _CONFIG.format(
        alias=known.split()[0],
        dial=shlex.join([*python, host, port, f"{private}/token"]).replace("%", "%%"),
        folder=private.replace("%", "%%"),
        seconds=_CONNECT_SECONDS,
    )
    key = str(mount["key"]).rstrip("\n") + "\n"
    texts = {"key": key, "known_hosts": f"{known}\n", "config": config, "dial": _DIAL}
    for name, text in {**texts, "token": str(mount["token"]).strip()}.items():
        fd = os.open(os.path.join(private, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    options = ",".join((*_OPTIONS, *(mount.get("options") or ())))
    argv = ["sshfs", "-f", "-F", f"{private}/config", "-p", port, "-o", options]
    # It begins in the folder that is served.
    return [*argv, f"{mount['user']}@{f'[{host}]' if ':' in host else host}:"]
