"""Files by content, kept on the node for all attempts that read them, up to a limit."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from typing import Callable


class Cache:
    """What has been brought; what is in use is never removed. Threads may share it."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        #: Bytes by digest; what was used longest ago comes first.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        #: How many attempts use each.
        self._users: dict[str, int] = {}
        self._coming: set[str] = set()
        self._changed = threading.Condition()

    def path(self, digest: str) -> str:
        """Say where content is, or would be."""
        return os.path.join(self._folder, digest[:2], digest)

    def use(self, digest: str, check: Callable[[], None]) -> bool:
        """Keep content from being removed; tell whether it is here, else the caller brings it.

        Who asks for what another brings waits for that; `check` may raise meanwhile.
        """
        with self._changed:
            while digest in self._coming:
                check()
                self._changed.wait(0.5)
            self._users[digest] = self._users.get(digest, 0) + 1
            if digest in self._sizes:
                self._sizes.move_to_end(digest)
                return True
            self._coming.add(digest)
            return False

    def keep(self, digest: str, size: int) -> None:
        """Note that content was brought."""
        with self._changed:
            self._coming.discard(digest)
            self._sizes[digest] = size
            self._evict()
            self._changed.notify_all()

    def fail(self, digest: str) -> None:
        """Note that content could not be brought; the next who asks for it may try."""
        with self._changed:
            self._coming.discard(digest)
            self._let_go(digest)
            self._changed.notify_all()

    def release(self, digest: str) -> None:
        """Note that an attempt uses content no more."""
        with self._changed:
            self._let_go(digest)
            self._evict()

    def drop(self, digest: str) -> None:
        """Forget content that is not what it was any more."""
        with self._changed:
            self._remove(digest)

    def _let_go(self, digest: str) -> None:
        left = self._users[digest] - 1
        if left:
            self._users[digest] = left
        else:
            del self._users[digest]

    def _evict(self) -> None:
        total = sum(self._sizes.values())
        for digest, size in list(self._sizes.items()):
            if total <= self._limit:
                return
            if digest not in self._users:
                self._remove(digest)
                total -= size

    def _remove(self, digest: str) -> None:
        if self._sizes.pop(digest, None) is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(digest))
