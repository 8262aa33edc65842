r"""Text that must survive the way to disk and back, whatever bytes it holds.

A file name is bytes. Python shows those that are not UTF-8 as lone surrogates, which neither UTF-8
nor SQLite takes. A *path* is stored with each such byte as `//xx`: a normalised path never holds
`//`, so this is unambiguous and readable. Any other text travels as JSON with `\udcxx` escapes.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import msgspec

_ODD = re.compile("[\udc80-\udcff]")
#: Lone surrogates that stand for no byte; JSON can bring them.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_STORED = re.compile("//([0-9a-f]{2})")
#: Kinds of structs that are worked out.
_primed: set[type] = set()


def store_path(path: str) -> str:
    """Turn a path into text that is valid UTF-8."""
    if path.isascii():
        return path
    return _ODD.sub(lambda found: f"//{ord(found[0]) - 0xDC00:02x}", path)


def load_path(text: str) -> str:
    """Undo `store_path`."""
    if "//" not in text:
        return text
    return _STORED.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text)


def dump(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Write JSON, also of text with lone surrogates."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value))


def load(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON, also of text with lone surrogates."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def prime(*kinds: type) -> None:
    """Prepare types of structs now: threads that do it at once, at first use, crash."""
    for kind in kinds:
        msgspec.json.Decoder(kind)


def prime_all() -> None:
    """Do so with all kinds of structs that are loaded by now: for a process with threads."""
    left = [msgspec.Struct]
    while left:
        for kind in left.pop().__subclasses__():
            left.append(kind)
            if kind not in _primed:
                _primed.add(kind)
                # Types that cannot be decoded are never decoded.
                with contextlib.suppress(TypeError, NameError):
                    prime(kind)


def show(value: str) -> str:
    """Make text printable: odd bytes and control characters are escaped."""
    whole = _HALF.sub(lambda found: repr(found[0])[1:-1], value)
    plain = whole.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in plain)
