"""An authority that says who is who, for as long as is wanted; also for no time at all."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Seconds for which certificates hold that are not about time.
DAY_S = 86400


class Papers(NamedTuple):
    """What somebody shows: a certificate, and the key that proves it."""

    certificate: Path
    key: Path


class Authority:
    """Issues certificates into a folder; `certificate` is the file that others trust."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        """Make the authority's own key and certificate."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.certificate = folder / "authority.pem"
        limits = x509.BasicConstraints(ca=True, path_length=0)
        made = _begun(self._name, self._name, self._key.public_key(), DAY_S)
        signed = made.add_extension(limits, critical=True).sign(self._key, hashes.SHA256())
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, seconds: float = DAY_S, address: str = "", into: Path | None = None
    ) -> Papers:
        """Say who somebody is; `address` makes it a server's, and seconds below 0 are over.

        Papers of the same name in the same folder, by default the authority's own, are replaced.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        made = _begun(_named(name), self._name, key.public_key(), seconds)
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if address else ExtendedKeyUsageOID.CLIENT_AUTH
        made = made.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if address:
            where = x509.IPAddress(ipaddress.ip_address(address))
            names = x509.SubjectAlternativeName([where, x509.DNSName("localhost")])
            made = made.add_extension(names, critical=False)
        folder = into or self._folder
        papers = Papers(folder / f"{name}.pem", folder / f"{name}.key")
        signed = made.sign(self._key, hashes.SHA256())
        put(papers.key, _plain(key))
        put(papers.certificate, signed.public_bytes(serialization.Encoding.PEM))
        return papers


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, seconds: float
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(seconds=seconds)
    # Clocks differ, and one that is over must have begun before.
    begin = min(now, end) - dt.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _plain(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def put(path: Path, content: bytes) -> None:
    """Replace a file at once, as those who renew certificates do."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.replace(path)
