"""Log lines for machines: JSON, and the line protocol of InfluxDB."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any


class JsonFormatter(logging.Formatter):
    """Write a record as JSON."""

    def __init__(self, fmt: Mapping[str, Any] | None = None, datefmt: str | None = None) -> None:
        """Begin every record with `fmt`; an empty `datefmt` leaves the time out."""
        super().__init__(datefmt=datefmt)
        self._defaults = dict(fmt or {})
        self._timed = datefmt is None or bool(datefmt)

    def format(self, record: logging.LogRecord) -> str:
        """Write the defaults, the time, the message and the record's fields."""
        fields = _fields(record)
        time = {"time": self.formatTime(record, self.datefmt)} if self._timed else {}
        message = record.getMessage() if fields else str(record.msg)
        whole = {**self._defaults, **time, "message": message, **fields}
        return json.dumps({key: _finite(value) for key, value in whole.items()}, default=str)


class LineProtocolFormatter(logging.Formatter):
    """Write a record as a line for InfluxDB or Telegraf."""

    def __init__(
        self,
        tags: Mapping[str, Any] | Iterable[str] | None = None,
        resolution: float | None = None,
    ) -> None:
        """Take these fields as tags, a mapping has defaults for them; round the time down."""
        super().__init__()
        self._defaults = dict(tags) if isinstance(tags, Mapping) else {}
        self._tags = set(tags or ())
        self._resolution = resolution

    def format(self, record: logging.LogRecord) -> str:
        """Write name, tags, fields and time."""
        given = {key: _finite(value) for key, value in _fields(record).items()}
        known = {key: value for key, value in given.items() if value is not None}
        tags = {**self._defaults, **{key: known[key] for key in self._tags & known.keys()}}
        hidden = self._tags | _OF_RECORDS
        fields = {key: value for key, value in known.items() if key not in hidden}
        name = record.getMessage() if given else str(record.msg)
        line = ",".join(
            [
                name.replace(",", r"\,").replace(" ", r"\ "),
                *(f"{_key(key)}={_key(value)}" for key, value in sorted(tags.items())),
            ]
        )
        line += " " + ",".join(f"{_key(key)}={_value(fields[key])}" for key in sorted(fields))
        if self._resolution is not None:
            moment = record.created // self._resolution * self._resolution
            line += f" {int(moment * 1e9)}"
        return line + "\n"


#: What a log record has of its own, which no line repeats.
_OF_RECORDS = {*vars(logging.makeLogRecord({})), "asctime", "message"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return dict(record.args) if isinstance(record.args, Mapping) else {}


def _finite(value: Any) -> Any:  # noqa: ANN401 - whatever was logged
    """Leave out numbers that neither format can write."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _key(value: object) -> str:
    return str(value).replace(",", r"\,").replace("=", r"\=").replace(" ", r"\ ")


def _value(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", r"\\").replace('"', r"\"") + '"'
    return str(value)
