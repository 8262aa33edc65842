"""Failures of transfers: what HTTP statuses, messages and errnos mean, and whether to retry."""

from __future__ import annotations

import errno
import re
from enum import StrEnum

from pilotage.base import errors, text

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHUT = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: Characters of an error message that are shown.
_WORDS = 500
#: Words by which servers and programs say that it is the credential.
_CREDENTIAL = re.compile(
    r"permission denied \([\w,-]*(publickey|password|keyboard|gssapi|hostbased)"
    r"|auth(entication)? failed|token.{0,20}expired|expired.{0,20}(token|proxy|credential|cert)"
    r"|certificate.{0,20}expired|no protocols left to try|credential",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"no such file|not found|does not exist|unknown module|\[3011\]", re.IGNORECASE
)
_DENIED = re.compile(
    r"permission denied|access denied|not authorized|is read only|host key verification failed"
    r"|remote host identification has changed|forbidden|\[3010\]",
    re.IGNORECASE,
)
_FULL_WORDS = re.compile(r"no space left|quota exceeded|disk full|\[3009\]", re.IGNORECASE)


class ErrorClass(StrEnum):
    """The meaning of an error for the next attempt."""

    #: The same may succeed later.
    TRANSIENT = "transient"
    #: It will not, before the request is changed.
    PERMANENT = "permanent"
    #: It may as soon as there is another credential.
    CREDENTIAL = "credential"


def classify(error: errors.PilotageError) -> ErrorClass:
    """Return what an error means for the next attempt."""
    if isinstance(error, errors.NeedsCredential):
        return ErrorClass.CREDENTIAL
    return ErrorClass.TRANSIENT if error.retryable else ErrorClass.PERMANENT


def of_writing(error: OSError) -> errors.PilotageError:
    """Return the error for a failed operation on a file here."""
    where = f" {text.show(str(error.filename))}" if error.filename else ""
    words = f"cannot write{where}: {error.strerror}"
    if error.errno in _FULL:
        return errors.Unavailable(f"the disk here is full: {words}", hint="free space")
    return errors.PilotageError(words)


def of_reading(error: OSError) -> errors.PilotageError:
    """Return why a file or folder here cannot be read."""
    where = text.show(str(error.filename)) if error.filename else "a file"
    words = f"cannot read {where}: {error.strerror}"
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return errors.NotFound(words)
        case code if code in _SHUT:
            return errors.Denied(words)
        case errno.ELOOP:
            return errors.Denied(f"{words}: links are not followed")
        case _:
            return errors.Unavailable(words)


def of_words(what: str, said: str) -> errors.PilotageError:
    """Return the error for a failure that a program or server reports in text."""
    shown = text.show(said.strip())[-_WORDS:] or "it does not say why"
    message = f"{what}: {shown}"
    if _CREDENTIAL.search(said):
        return errors.NeedsCredential(message, hint="renew the credential; it is tried again then")
    if _MISSING.search(said):
        return errors.NotFound(message)
    if _DENIED.search(said):
        return errors.Denied(message)
    if _FULL_WORDS.search(said):
        return errors.Unavailable(message, hint="there is no space left")
    return errors.Unavailable(message)


def of_status(message: str, status: int) -> errors.PilotageError:
    """Return the error for a failure that a server reports by a status of HTTP."""
    match status:
        case 401 | 407:
            return errors.NeedsCredential(message, hint="renew the token or the certificate")
        case 404 | 410:
            return errors.NotFound(message)
        case 408 | 423 | 425 | 429 | 507:
            return errors.Unavailable(message)
        case 409 | 412:
            return errors.Conflict(message)
        case _ if status < 500:
            return errors.Denied(message)
        case _:
            return errors.Unavailable(message)


def changed(name: str) -> errors.Damaged:
    """Return the error for a file that was written while it was read."""
    return errors.Damaged(
        f"{text.show(name)} changes while it is copied",
        hint="write it elsewhere and rename it when it is complete",
    )
