"""Causes of connection failures, read from the messages of `ssh`."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from pilotage.base import errors


class TroubleKind(StrEnum):
    """Why there is no connection."""

    #: A code, a password or another key is wanted: a person must log in.
    LOGIN = "login"
    #: The host's key is not confirmed yet.
    UNKNOWN_KEY = "unknown key"
    #: The host shows another key than the one that is known.
    CHANGED_KEY = "changed key"
    #: A file of settings of `ssh` is wrong.
    SETTINGS = "settings"
    #: There is no host of that name.
    NAME = "name"
    #: Nothing listens there.
    REFUSED = "refused"
    #: Nothing answers there.
    SILENT = "silent"
    #: The host ended the connection.
    CLOSED = "closed"
    #: The host allows no more programs at once by this connection.
    SESSIONS = "sessions"
    #: Anything else.
    OTHER = "other"


#: A person must do something first; to try again and again may even lock the account.
BARRED = frozenset(
    {TroubleKind.LOGIN, TroubleKind.UNKNOWN_KEY, TroubleKind.CHANGED_KEY, TroubleKind.SETTINGS}
)

_SIGNS: tuple[tuple[TroubleKind, str], ...] = (
    (TroubleKind.CHANGED_KEY, r"REMOTE HOST IDENTIFICATION HAS CHANGED|REVOKED HOST KEY"),
    (TroubleKind.UNKNOWN_KEY, r"host key is known for|Host key verification failed"),
    (
        TroubleKind.SETTINGS,
        r"[Bb]ad configuration option|Bad owner or permissions|bad configuration",
    ),
    (TroubleKind.SETTINGS, r"Can't open user config file"),
    (
        TroubleKind.LOGIN,
        r"Permission denied|Too many authentication failures|no more authentication",
    ),
    (TroubleKind.NAME, r"Could not resolve hostname|Name or service not known"),
    (TroubleKind.REFUSED, r"Connection refused"),
    (TroubleKind.SILENT, r"timed out|No route to host|Network is unreachable|Host is down"),
    (TroubleKind.SESSIONS, r"Session open refused by peer|session request failed"),
    (TroubleKind.CLOSED, r"Connection (?:closed|reset)|Broken pipe|kex_exchange_identification"),
    (
        TroubleKind.CLOSED,
        r"Control socket connect|stdio forwarding failed|Connection to \S+ closed",
    ),
)
#: The message and the hint for each kind.
_TOLD = {
    TroubleKind.LOGIN: ("{host} wants a person to log in{asks}", "{login}"),
    TroubleKind.UNKNOWN_KEY: (
        "the host key of {whose} is not known",
        "{login} shows it and asks; or add it to ~/.ssh/known_hosts",
    ),
    TroubleKind.CHANGED_KEY: (
        "THE HOST KEY OF {whose} HAS CHANGED: it was reinstalled, or the connection is intercepted",
        "ask its administrator; only if the new key is right, remove the old one from {place}",
    ),
    TroubleKind.SETTINGS: ("ssh: {line}", "correct its settings; only you may have write access"),
    TroubleKind.NAME: (
        "there is no host {host}",
        "`host` in the site's file is a name of ~/.ssh/config or of the network",
    ),
    TroubleKind.REFUSED: (
        "{host} refuses connections", "it is down for now, or its SSH server has another port"
    ),
    TroubleKind.SILENT: ("{host} does not answer", "it is down, or a firewall is in between"),
    TroubleKind.SESSIONS: (
        "{host} allows no more programs at once by one connection",
        "`MaxSessions` of its SSH server says how many",
    ),
    TroubleKind.CLOSED: ("{host} ended the connection", "it may be about to go down"),
    TroubleKind.OTHER: ("no connection to {host}: {line}", ""),
}  # fmt: skip
#: Lines that say nothing by themselves.
_NOISE = re.compile(r"^(?:debug\d:|@+$|Warning: |kex_exchange|Connection closed by UNKNOWN|$)")


class ConnectionTrouble(msgspec.Struct, frozen=True):
    """Why there is no connection."""

    kind: TroubleKind
    message: str
    hint: str = ""

    def error(self) -> errors.PilotageError:
        """Make the error to raise."""
        if self.kind in (TroubleKind.CHANGED_KEY, TroubleKind.SESSIONS):
            return errors.Denied(self.message, hint=self.hint)
        if self.kind is TroubleKind.SETTINGS:
            return errors.ConfigError(self.message, hint=self.hint)
        return errors.Unavailable(self.message, hint=self.hint)


def understand(said: str, host: str, name: str) -> ConnectionTrouble:
    """Classify the error output of `ssh`."""
    found = ((kind, match) for kind, sign in _SIGNS if (match := re.search(sign, said)))
    kind, sign = next(found, (TroubleKind.OTHER, None))
    stranger = re.search(r"key is known for (\S+)|[Kk]ey for (\S+) has changed", said)
    ways = re.search(r"Permission denied \(([^)]*)\)", said)
    offending = re.search(r"Offending \S+ key in (\S+)", said)
    known = {
        "host": host,
        "login": f"`pilotage site login {name}`",
        "asks": f" (it asks for {ways[1].replace(',', ', ')})" if ways else "",
        "place": offending[1] if offending else "~/.ssh/known_hosts",
        "whose": (stranger[1] or stranger[2]) if stranger else host,
        "line": _line(said, sign.start()) if sign else last(said) or "ssh does not say why",
    }
    message, hint = _TOLD[kind]
    return ConnectionTrouble(kind, message.format_map(known), hint.format_map(known))


def _line(said: str, at: int) -> str:
    """Return the line around a place in text."""
    return (said[:at].rpartition("\n")[2] + said[at:].partition("\n")[0]).strip()


def last(said: str) -> str:
    """Return the last line that says something."""
    lines = [line.strip() for line in said.splitlines()]
    return next((line for line in reversed(lines) if not _NOISE.match(line)), "")
