"""Credentials of servers: paths of files, never the secrets themselves."""

from __future__ import annotations

import msgspec

from pilotage.base import errors
from pilotage.data.transfer.version import Version


class Credentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The credentials for one host."""

    #: A file with a bearer token, for HTTP, XRootD and Globus.
    token: str = ""
    #: A file with `user:password`, for HTTP; or a password, for an rsync daemon.
    password: str = ""
    #: A certificate, its key, and trusted authorities.
    certificate: str = ""
    key: str = ""
    authorities: str = ""
    #: A configuration of `ssh`, with keys and known hosts.
    ssh_config: str = ""
    #: Options of a file system of fsspec as JSON, such as S3's keys and address.
    options: str = ""

    def version(self) -> tuple[object, ...]:
        """Return what changes whenever one of the files does."""
        return tuple(Version.at(path) for path in msgspec.structs.astuple(self) if path)


NONE = Credentials()


def secret(path: str) -> str:
    """Read a secret; raise `NeedsCredential` if it is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            found = file.read(1 << 16).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.NeedsCredential(f"the credential {path} cannot be read") from error
    if not found:
        raise errors.NeedsCredential(f"the credential {path} is empty")
    return found
