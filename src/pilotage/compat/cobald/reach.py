"""How TARDIS reaches a batch system, in words that `ssh` knows."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from pilotage.compat.cobald.document import Element

#: Options of asyncssh, and what they are called in a settings file of `ssh`.
_WORDS = {
    "host": "HostName",
    "username": "User",
    "port": "Port",
    "client_keys": "IdentityFile",
    "client_certs": "CertificateFile",
    "known_hosts": "UserKnownHostsFile",
    "connect_timeout": "ConnectTimeout",
    "keepalive_interval": "ServerAliveInterval",
    "tunnel": "ProxyJump",
    "config": "Include",
}
_PLAIN = re.compile(r'[^"\x00-\x1f\x7f]+')
#: Names get into a command line that `ssh` hands to a shell to reach a jump host.
_NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:@,+\[\]-]*")
_NAMES = {"host", "username", "tunnel"}
_NO_CODES = "codes are not made up for you: `pilotage site login {site}` asks for them"
_WHY = {
    "password": "secrets are not copied: use a key, an agent or `pilotage site login {site}`",
    "passphrase": "secrets are not copied: use an agent",
    "mfa_config": _NO_CODES,
    "proxy_command": "write it into the settings file yourself, if you trust it",
    "wrapper": "what is run is a program with its arguments, never the text of a shell",
}
_SSH = ("SSHExecutor", "DupingSSHExecutor")
_SHELL = "ShellExecutor"


class Reach(msgspec.Struct, frozen=True):
    """How to get to a site."""

    #: Whether it is on another machine.
    far: bool = False
    #: The text of a settings file of `ssh`.
    settings: str = ""
    #: What could not be carried over.
    lost: tuple[str, ...] = ()


def reach(site: str, executor: Element | None) -> Reach:
    """Write down how to get to a site."""
    if executor is None:
        return Reach()
    kind = executor.kind.lstrip("!").rpartition(".")[2].removeprefix("Tardis")
    if kind == _SHELL:
        return Reach()
    if kind not in _SSH or executor.args:
        return Reach(lost=(f"executor `{executor.kind}` is not known here",))
    lines, lost = [f"Host {site}"], []
    for key, value in executor.keys.items():
        found = _lines(key, value)
        if key == "known_hosts" and value is None:
            lost.append("keys of hosts are checked always: log in once, or add them to known_hosts")
        elif found:
            lines += found
        else:
            why = _WHY.get(key, "`ssh` has its own way").format(site=site)
            lost.append(f"executor option `{key}`: {why}")
    return Reach(far=True, settings="\n".join([*lines, ""]), lost=tuple(lost))


def _lines(key: str, value: Any) -> list[str]:  # noqa: ANN401 - from a file
    word = _WORDS.get(key)
    values = value if isinstance(value, list) else [value]
    if word is None or not values:
        return []
    texts = [str(one) for one in values if isinstance(one, str | int | float)]
    form = _NAME if key in _NAMES else _PLAIN
    if len(texts) < len(values) or not all(form.fullmatch(one) for one in texts):
        return []
    if key == "tunnel":
        # `ssh` takes quotes around this one for a part of the name.
        return [f"    {word} {one}" for one in texts]
    return [f'    {word} "{one}"' for one in texts]
