"""TLS on the hub's port: a given certificate, or one made here."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any, Protocol

from pilotage.base import durable, errors

_log = logging.getLogger(__name__)
FOLDER = "tls"
_CERTIFICATE = "certificate.pem"
_KEY = "key.pem"
_DAYS = 3650
_NAMES = ("localhost", "127.0.0.1", "::1")
_ANY = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - to recognise them, not to listen on them


class TlsSettings(Protocol):
    """The settings that say how connections are encrypted."""

    @property
    def host(self) -> str:
        """The address to listen on."""

    @property
    def tls(self) -> str:
        """Either `auto`, `on` or `off`."""

    @property
    def tls_cert(self) -> str:
        """File of the certificate and those that vouch for it; empty means one made here."""

    @property
    def tls_key(self) -> str:
        """File of its key."""

    @property
    def names(self) -> tuple[str, ...]:
        """Further names of this machine."""


def loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def encrypted(settings: TlsSettings) -> bool:
    """Return whether connections are encrypted."""
    if settings.tls == "auto":
        return bool(settings.tls_cert) or not loopback(settings.host)
    return settings.tls == "on"


def context(settings: TlsSettings, state: Path) -> ssl.SSLContext | None:
    """Return the TLS context; None means no encryption."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise errors.ConfigError(
            "a certificate needs its key", hint="set both `tls_cert` and `tls_key`, or neither"
        )
    if settings.tls == "off" and not loopback(settings.host):
        raise errors.ConfigError(
            f"tokens would travel in the clear to {settings.host}",
            hint='set `tls = "auto"` in `[hub]`, or `host = "127.0.0.1"` behind a proxy',
        )
    if not encrypted(settings):
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = _files(settings, state)
    try:
        made.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise errors.ConfigError(
            f"cannot use the certificate {certificate}: {error}",
            hint="`tls_cert` and `tls_key` in `[hub]` are PEM files that belong together",
        ) from error
    return made


def _files(settings: TlsSettings, state: Path) -> tuple[Path, Path]:
    if settings.tls_cert:
        return state.parent / settings.tls_cert, state.parent / settings.tls_key
    certificate, key = state / FOLDER / _CERTIFICATE, state / FOLDER / _KEY
    if not (certificate.exists() and key.exists()):
        _make(certificate, key, [settings.host, *settings.names])
    elif missing := _missing(certificate, settings.names):
        _log.warning(
            "the certificate does not name %s, so pilots and programs that call the hub so will "
            "not trust it; to have a new one made, remove %s, and copy the new one to the nodes",
            ", ".join(missing),
            certificate,
        )
    return certificate, key


def _missing(certificate: Path, names: tuple[str, ...]) -> list[str]:
    """List the names that a certificate that was made before does not have."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        made.load_verify_locations(certificate)
        pairs: Any = made.get_ca_certs()[0].get("subjectAltName", ())
    except (OSError, ssl.SSLError, IndexError):
        return []  # reported when it is used
    known = {_same(value) for _, value in pairs}
    return [name for name in names if _plain(name) and _same(name) not in known]


def _same(name: str) -> str:
    """Write an address in one way only."""
    return str(ipaddress.ip_address(name)) if _is_address(name) else name.lower()


def authority(settings: TlsSettings, state: Path) -> Path | None:
    """Name the file that clients must trust; nothing if they need none."""
    if settings.tls_cert or not encrypted(settings):
        return None
    return state / FOLDER / _CERTIFICATE


def _make(certificate: Path, key: Path, names: list[str]) -> None:
    """Make a self-signed certificate, once."""
    certificate.parent.mkdir(mode=0o700, exist_ok=True)
    new = [certificate.with_suffix(".new"), key.with_suffix(".new")]
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-sha256", "-days", str(_DAYS), "-subj", "/CN=Pilotage",
        "-addext", f"subjectAltName={','.join(_alternatives(names))}",
        "-addext", "basicConstraints=critical,CA:TRUE,pathlen:0",
        "-keyout", str(new[1]), "-out", str(new[0]),
    ]  # fmt: skip
    try:
        # openssl makes the key's file readable for its owner only.
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.decode("utf-8", "replace") if hasattr(error, "stderr") else str(error)
        raise errors.ConfigError(
            f"cannot make a certificate: {said.strip()}",
            hint="install openssl, or set `tls_cert` and `tls_key` in `[hub]`",
        ) from error
    os.chmod(new[1], 0o600)
    # The certificate last: one that is there has its key.
    for part, target in ((new[1], key), (new[0], certificate)):
        durable.sync_file(part)
        durable.rename(part, target)


def _alternatives(names: list[str]) -> list[str]:
    """List the names and addresses of the hub."""
    found = dict.fromkeys([*_NAMES, socket.gethostname(), socket.getfqdn()])
    for name in names:
        found |= dict.fromkeys(_addresses() if name in _ANY else [name])
    return [f"{'IP' if _is_address(one) else 'DNS'}:{one}" for one in found if _plain(one)]


def _addresses() -> list[str]:
    """List the addresses of this machine, as far as its name tells them."""
    try:
        facts = socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return []
    return [str(fact[4][0]).partition("%")[0] for fact in facts]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _plain(host: str) -> bool:
    return bool(host) and all(char.isalnum() or char in ".-:" for char in host) and host.isascii()
