"""URLs of data, parsed strictly."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import quote, unquote, urlsplit

import msgspec

from pilotage.base import errors, text

#: The folder at a hub's own port for data of its jobs, as agents that dial it name it. Which hub it
#: is, and what proves to it who asks, stands in the settings of the agent.
PORT = "hub://port/data/"
_AT_PORT = "/data/"
_LONGEST = 8192
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")
# Neither may begin with a dash: programs would take it for an option.
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,63}")
#: Other names of the same thing.
SAME = {
    "scp": "sftp", "ssh": "sftp", "dav": "http", "davs": "https", "xroot": "root",
    "xroots": "roots", "local": "file",
}  # fmt: skip


class Url(msgspec.Struct, frozen=True):
    """An address; `path` is plain text as the file system has it, beginning with `/`."""

    scheme: str
    host: str = ""
    port: int = 0
    user: str = ""
    path: str = "/"
    query: str = ""

    def join(self, name: str) -> Url:
        """Name something below."""
        path = f"{self.path.rstrip('/')}/{name}"
        return msgspec.structs.replace(self, path=path, query="")

    @property
    def above(self) -> tuple[Url, str]:
        """The folder that this is in, and its name there; what was asked for stays with it."""
        folder, _, name = self.path.rstrip("/").rpartition("/")
        return msgspec.structs.replace(self, path=folder or "/"), name

    @property
    def place(self) -> str:
        """The host and the port, as URLs have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    @property
    def quoted(self) -> str:
        """The path with everything odd percent-encoded."""
        return quote(self.path.encode("utf-8", "surrogateescape"), safe="/~!$&'()*+,;=:@")

    def __str__(self) -> str:
        """Write it as people do; what was asked for may be secret and stays out."""
        user = f"{self.user}@" if self.user else ""
        return f"{self.scheme}://{user}{self.place}{text.show(self.path)}"


def at_port(given: str) -> str:
    """Return the path of an address below the folder at a hub's port; empty if it is elsewhere."""
    return parse(given).path.removeprefix(_AT_PORT) if given.startswith(PORT) else ""


def parse(given: str) -> Url:
    """Parse an address; raise `UsageError` if it is invalid."""
    if len(given) > _LONGEST:
        raise errors.UsageError(f"a URL of {len(given)} characters is too long")
    if not given.isprintable() or " " in given:
        raise _bad(given, "it holds blanks or control characters")
    try:
        parts = urlsplit(given)
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise _bad(given, str(error)) from error
    scheme = SAME.get(parts.scheme, parts.scheme)
    if not _SCHEME.fullmatch(scheme):
        raise _bad(given, "it has no scheme such as `https:`")
    if parts.password is not None:
        raise _bad("", "it holds a password", hint="put secrets into the site's files")
    if parts.fragment or (parts.query and scheme not in ("http", "https")):
        raise _bad(given, "it has a part after `?` or `#`")
    if parts.username and not _USER.fullmatch(parts.username):
        raise _bad(given, "the user name is invalid")
    host = "" if scheme == "file" and host == "localhost" else _host(given, host.rstrip("."))
    if not host and scheme not in ("file", "memory"):
        raise _bad(given, "it names no host")
    path = _path(given, parts.path)
    return Url(scheme, host, port, parts.username or "", path, parts.query)


def _host(given: str, host: str) -> str:
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError as error:
            raise _bad(given, str(error)) from error
    if host and not _HOST.fullmatch(host):
        raise _bad(given, "the host name is invalid")
    return host.lower()


def _path(given: str, path: str) -> str:
    plain = unquote(path, "utf-8", "surrogateescape") or "/"
    if not plain.startswith("/"):
        raise _bad(given, "its path does not begin with `/`")
    if {".", ".."} & set(plain.split("/")):
        raise _bad(given, "its path leads upwards")
    if any(ord(char) < 32 or ord(char) == 127 for char in plain):
        raise _bad(given, "its path holds control characters")
    return plain


def _bad(given: str, why: str, *, hint: str = "") -> errors.UsageError:
    shown = f" {text.show(given)[:200]!r}" if given else ""
    return errors.UsageError(f"the URL{shown} cannot be used: {why}", hint=hint)
