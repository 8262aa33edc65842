"""What others write beside a message is read, whatever it is.

Who sends chooses names, times and headers freely, and the broker passes on what is no text and no
time at all. The library gives the whole connection up over that, and the message comes again with
the next one: a single sender would have cut everybody off.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pamqp import decode

#: Stands for what is no text.
ODD = "\ufffd"
_NEVER = datetime.fromtimestamp(0, tz=UTC)
#: A date that cannot be is any of these.
_NO_DATE = (ValueError, OverflowError, OSError)


def read_anything() -> None:
    """Have properties of messages read whatever is in them; to ask for it twice is harmless."""
    decode.METHODS["shortstr"] = text
    decode.METHODS["timestamp"] = moment
    decode.METHODS["table"] = table


def text(value: bytes) -> tuple[int, str]:
    """Read a short text, and say how many bytes it took."""
    if not value:
        raise ValueError("there is no text")
    end = value[0] + 1
    return end, value[1:end].decode("utf-8", "replace")


def moment(value: bytes) -> tuple[int, datetime]:
    """Read a time; one that no calendar has is the first of all."""
    try:
        return decode.timestamp(value)
    except _NO_DATE:
        return 8, _NEVER


def table(value: bytes) -> tuple[int, dict[str, Any]]:
    """Read a table; one that holds anything odd is empty."""
    try:
        return decode.field_table(value)
    except _NO_DATE:
        return 4 + int.from_bytes(value[:4], "big"), {}
