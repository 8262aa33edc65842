"""Orders of submissions: written before they are submitted, fenced in doubt, dropped after.

`order.json` has one item a line, so that each job of a large array reads its own alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Mapping
from typing import Any

from .. import claim, durable, tidy
from . import files
from .files import RequestError

_BULK = 1 << 20
_TURNS = 64


class Orders:
    """The folders of all submissions."""

    def __init__(self, root: str) -> None:
        self._root = root
        # The same key always has the same one, others hardly ever.
        self._turns = [threading.Lock() for _ in range(_TURNS)]
        self._tidying = threading.Lock()

    def prepare(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Make the folder of a submission with all that its jobs need; tell which inputs lack."""
        key = files.check_key(asked["key"])
        text = rendered(asked["order"])
        links = [files.check_digest(one) for one in asked.get("links") or ()]
        with self._turns[hash(key) % _TURNS]:
            place = self._place(key)
            durable.folder(place)
            if self._known(place, text):
                return {"missing": []}
            missing = self._link(place, links)
            if not missing:
                if asked.get("script"):
                    durable.write(os.path.join(place, "script.sh"), asked["script"])
                durable.write(os.path.join(place, "order.json"), text)
            return {"missing": missing}

    def fence(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take the items of a submission that no job has begun, so that none ever will.

        `only` numbers some of them; else all of its `count` are meant.
        """
        key, count = files.check_key(asked["key"]), int(asked["count"])
        only = asked.get("only")
        meant = range(count) if only is None else [int(one) for one in only]
        place = self._place(key)
        durable.folder(place)
        free: list[int] = []
        taken: dict[str, Any] = {}
        for index in meant:
            found = claim.take(place, index, {"fenced": True, **claim.who()})
            if found is None or found.get("fenced"):
                free.append(index)
            else:
                taken[str(index)] = found
        return {"free": free, "taken": taken}

    def drop(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Remove submissions wholly; what takes long is done after the answer."""
        trash = self._trash()
        durable.folder(trash)
        gone = []
        for key in (files.check_key(one) for one in asked["keys"]):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._place(key), os.path.join(trash, f"{key}.{uuid.uuid4().hex}"))
                gone.append(key)
        if gone:
            durable.sync(os.path.join(self._root, "s"))
        self.tidy()
        return {"dropped": gone}

    def tidy(self) -> None:
        """Empty the trash, also what an earlier login helper left there."""
        threading.Thread(target=self._empty, daemon=True).start()

    def _empty(self) -> None:
        with self._tidying:
            tidy.empty(self._trash())

    def _place(self, key: str) -> str:
        return os.path.join(self._root, "s", key)

    def _trash(self) -> str:
        return os.path.join(self._root, "trash")

    def _known(self, place: str, text: str) -> bool:
        """Return whether the same was prepared before; another for the same key is an error."""
        path = os.path.join(place, "order.json")
        try:
            with open(path, encoding="utf-8") as file:
                known = file.read()
        except FileNotFoundError:
            return False
        if known != text:
            raise RequestError("usage", f"{path} is there already and says something else")
        return True

    def _link(self, place: str, digests: list[str]) -> list[str]:
        """Put inputs beside the order, where they are not evicted."""
        if not digests:
            return []
        folder = os.path.join(place, "in")
        durable.folder(folder)
        missing = []
        for digest in digests:
            cached = os.path.join(self._root, "cache", digest[:2], digest)
            try:
                _join(cached, os.path.join(folder, digest))
            except FileNotFoundError:
                missing.append(digest)
        durable.sync(folder)
        return missing


def rendered(order: Mapping[str, Any]) -> str:
    """Write an order, the same one always as the same text."""
    head = {name: value for name, value in order.items() if name != "items"}
    items = ",\n".join(_dump(one) for one in order["items"])
    return f'{_dump(head)[:-1]},"items":[\n{items}\n]}}\n'


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _join(source: str, target: str) -> None:
    """Give a file a second name, or copy it where that cannot be done."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:
        part = f"{target}.{uuid.uuid4().hex}.part"
        with open(source, "rb") as read, open(part, "xb") as write:
            shutil.copyfileobj(read, write, _BULK)
            write.flush()
            os.fsync(write.fileno())
        os.chmod(part, 0o444)
        os.rename(part, target)
