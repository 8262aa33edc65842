"""Address and token of the hub: from arguments, the environment or the project."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from pilotage.base import errors

#: The environment variables that name the hub and hold the token for it.
HUB = "PILOTAGE_HUB"
TOKEN = "PILOTAGE_TOKEN"  # noqa: S105 - a name
#: Set while the file of a function is being loaded in a worker.
LOADING = "PILOTAGE_LOADING"
_STATE = ".pilotage"
_PORT = 8420
_NEAR = ("localhost", "127.0.0.1", "::1")


class Address(msgspec.Struct, frozen=True):
    """Where a hub is, and the secret that opens it."""

    host: str
    port: int
    token: str
    #: Whether the connection is encrypted.
    secure: bool = False
    #: The file with the authority that vouches for the hub; empty means those of the system.
    ca: str = ""

    @property
    def name(self) -> str:
        """The host as a request names it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def context(self) -> ssl.SSLContext | None:
        """Return how to encrypt, if at all."""
        if not self.secure:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise errors.ConfigError(f"cannot read {self.ca}: {error.strerror}") from None


class _Home(msgspec.Struct):
    """The address file that a hub writes for programs on its machine."""

    url: str
    ca: str = ""


def find(
    url: str | None = None, token: str | None = None, ca: str | None = None,
    start: Path | None = None,
) -> Address:  # fmt: skip
    """Find the hub: what is given counts first, then the environment, then the project here.

    `start` is where to look for a project, and counts before the environment.
    """
    if os.environ.get(LOADING):
        message = "the file of a function connects to a hub while it is loaded in a worker"
        hint = "put the statements that are no definitions below `if __name__ == '__main__':`"
        raise errors.UsageError(message, hint=hint)
    if start is None:
        url = url or os.environ.get(HUB)
        token = token or os.environ.get(TOKEN)
    if not url:
        state = _state(start)
        home = _home(state)
        url, ca = home.url, ca or home.ca
        token = token or _read(state / "admin-token").strip()
    address = _address(url, token or "", ca or "")
    # The token of the project here is for its own hub, and no other one may see it.
    return address if token else _at_home(address, start)


def _at_home(address: Address, start: Path | None) -> Address:
    """Take the token of the project here if the hub that was named is its own."""
    missing = errors.Denied(
        f"there is no token for the hub at {address.name}", hint=f"give `token`, or set {TOKEN}"
    )
    try:
        state = _state(start)
        home = _home(state)
    except errors.PilotageError:
        raise missing from None
    own = _address(home.url, "", address.ca or home.ca)
    if msgspec.structs.replace(own, ca=address.ca) != address:
        raise missing
    return msgspec.structs.replace(own, token=_read(state / "admin-token").strip())


def _address(url: str, token: str, ca: str) -> Address:
    if "://" not in url:
        # Only on this machine is a hub without encryption.
        near = urlsplit(f"//{url}").hostname in _NEAR
        url = f"{'http' if near else 'https'}://{url}"
    parts = urlsplit(url)
    try:
        port = parts.port or _PORT
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        hint = "such as https://hub.example.org:8420"
        raise errors.UsageError(f"{url!r} is not the address of a hub", hint=hint)
    return Address(parts.hostname, port, token, parts.scheme == "https", ca)


def _state(start: Path | None) -> Path:
    here = start.absolute() if start else Path.cwd()
    for folder in (here, *here.parents):
        if (folder / _STATE).is_dir():
            return folder / _STATE
    message = f"there is no Pilotage project in {here} or above, and no hub was named"
    raise errors.NoProject(message, hint=f"give `url` and `token`, or set {HUB} and {TOKEN}")


def _home(state: Path) -> _Home:
    try:
        return msgspec.json.decode((state / "hub.json").read_bytes(), type=_Home)
    except FileNotFoundError:
        message = f"nothing runs the project in {state.parent} now"
        raise errors.NoRunner(message, hint="`pilotage up` runs it") from None
    except (OSError, msgspec.DecodeError) as error:
        raise errors.ConfigError(f"cannot read {state / 'hub.json'}: {error}") from None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}"
        raise errors.Denied(message, hint=f"give a token, or set {TOKEN}") from None
