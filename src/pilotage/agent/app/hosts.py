"""Hosts that data of a job may come from and go to.

A site that fetches URLs of strangers must not open its own network: addresses of this machine, of
private networks and of cloud metadata services are refused in every spelling, unless the
application names their network. A name may resolve to anything, so its addresses are checked again
when the connection is made, by `data.transfer.allow`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import UNSET

from pilotage.agent.app.model import Staging
from pilotage.bus.model import Input
from pilotage.bus.wire import BAD
from pilotage.data.transfer import allow

_PORTS = {
    "http": 80, "https": 443, "dav": 80, "davs": 443, "sftp": 22, "scp": 22, "rsync": 22,
    "root": 1094, "roots": 1094, "xroot": 1094, "xroots": 1094,
}  # fmt: skip
#: Kinds of URLs that may name a user.
_WITH_USER = frozenset({"sftp", "scp", "rsync"})
_WITH_QUERY = frozenset({"http", "https", "dav", "davs"})
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_HOST = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
#: A name whose last part is a number is read as an address by many programs.
_NUMERIC = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)")
#: Names that mean this machine or its network.
_INNER = re.compile(r"(.*\.)?(localhost|localdomain|local|internal|intranet|lan|home|corp|arpa)")


def why_not(url: str, staging: Staging) -> str:
    """Return why a URL may not be used; none if it may."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"it is no URL: {error}"
    scheme = parts.scheme
    if BAD.search(url) or " " in url or "\\" in url or url[: len(scheme)] != scheme:
        return "it has characters that no URL has"
    if scheme not in staging.protocols:
        return f"`{scheme}` is none of {', '.join(staging.protocols) or 'nothing'}"
    if reason := _path(parts):
        return reason
    if scheme == "hub":
        # The settings of this site name the hub.
        return "" if parts.netloc == "port" and not parts.query else "no hub has such an address"
    return _file(parts, staging) if scheme == "file" else _remote(parts, port, staging)


def carries(staging: Staging, *, dials: bool) -> bool:
    """Return whether jobs may carry small inputs in their messages.

    Inputs in messages of the hub that an agent `dials` are as safe as inputs at that hub's port.
    For senders at a broker, the application must allow the protocol `message`.
    """
    return "message" in staging.protocols or (dials and "hub" in staging.protocols)


def why_not_input(one: Input, staging: Staging) -> str:
    """Return why an input cannot be had from its URL, or from the message; none if it can."""
    if one.content is UNSET:
        return why_not(one.url, staging) if one.url else "it has neither `url` nor `content`"
    if one.url:
        return "it has both `url` and `content`"
    if not carries(staging, dials=True):
        return "`protocols` has neither `message` nor `hub`"
    if not one.path or one.path.endswith("/"):
        return "`path` must name the file whose `content` comes with it"
    try:
        found = hashlib.sha256(carried(one)).hexdigest()
    except binascii.Error:
        return "`content` is not base64"
    if one.sha256 and found != one.sha256:
        return f"`content` has the SHA-256 {found} instead of {one.sha256}"
    return ""


def carried(one: Input) -> bytes:
    """Return the content of an input that came with its message."""
    return base64.b64decode(one.content or "", validate=True)


def _path(parts: SplitResult) -> str:
    path = unquote(unquote(parts.path))
    if BAD.search(path) or "\\" in path:
        return "its path has characters that no file should have"
    if ".." in path.split("/"):
        return "its path leads upwards"
    if parts.fragment:
        return "it has a `#`"
    if parts.query and parts.scheme not in _WITH_QUERY:
        return "it has a `?`"
    return ""


def _file(parts: SplitResult, staging: Staging) -> str:
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/"):
        return "a URL of a file is `file:///` and its absolute path"
    if not any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in staging.roots):
        return f"it is below none of {', '.join(staging.roots) or 'no folder'}"
    return ""


def _remote(parts: SplitResult, port: int | None, staging: Staging) -> str:
    if parts.password is not None:
        return "it holds a password"
    if parts.username is not None and (
        parts.scheme not in _WITH_USER or not _USER.fullmatch(parts.username)
    ):
        return "it names a user"
    host = (parts.hostname or "").removesuffix(".")
    if not host:
        return "it names no host"
    usual = _PORTS.get(parts.scheme)
    if not any(_is(host, port or usual, usual, one) for one in staging.hosts):
        known = ", ".join(staging.hosts) or "none"
        return f"the host `{ascii(host)[1:-1]}` is none of those allowed: {known}"
    return _inner(host, staging)


def _is(host: str, port: int | None, usual: int | None, pattern: str) -> bool:
    """Return whether a host matches; a pattern without a port means the default port."""
    name, colon, digits = pattern.rpartition(":")
    if not colon or not digits.isdecimal() or name.endswith(":"):
        name, digits = pattern, ""
    if port != (int(digits) if digits else usual):
        return False
    name = name.lower().strip("[]")
    if name.startswith("*."):
        return host.endswith(name[1:]) and len(host) > len(name) - 1
    return name in ("*", host)


def _inner(host: str, staging: Staging) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _name(host, staging)
    if _allowed(address, staging):
        return ""
    return f"the address {host} is of this machine or a private network"


def _name(host: str, staging: Staging) -> str:
    if not _HOST.fullmatch(host):
        return "its host is no name"
    if _NUMERIC.fullmatch(host):
        return "its host is a number in disguise"
    exact = {one.partition(":")[0].lower() for one in staging.hosts}
    if (_INNER.fullmatch(host) or "." not in host) and host not in exact:
        return f"the host `{host}` is of this machine or a private network"
    return ""


def _allowed(address: allow.Address, staging: Staging) -> bool:
    return allow.open_to_all(address, staging.private)
