"""What this machine is short of for a while: no job pays for it, it waits."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from pilotage.base import errors

#: Files to open, memory, processes, or room on a disk; and a file server that is away.
_SHORT = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT,
     errno.ESTALE}
)  # fmt: skip


@contextlib.contextmanager
def waits() -> Iterator[None]:
    """Raise `Unavailable` for what a shortage is behind, whatever was made of it since."""
    try:
        yield
    except errors.Unavailable:
        raise
    except (OSError, errors.PilotageError) as error:
        if found := _behind(error):
            message = f"this machine has run out of something: {found.strerror}"
            raise errors.Unavailable(message) from error
        raise


def _behind(error: BaseException) -> OSError | None:
    """Find a shortage among an error and those that it came of."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, OSError) and one.errno in _SHORT:
            return one
        one = one.__cause__ or one.__context__
    return None
