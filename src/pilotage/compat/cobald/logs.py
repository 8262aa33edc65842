"""The logging section of a COBalD configuration, and its formatters."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

from pilotage.compat.cobald import foreign
from pilotage.compat.cobald.document import Element, wrong


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


#: COBalD's formatters, and ours in their place.
_OURS: Mapping[str, type] = {
    "cobald.monitor.format_json.JsonFormatter": JsonFormatter,
    "cobald.monitor.format_line.LineProtocolFormatter": LineProtocolFormatter,
}
#: Those that write to a file, to a terminal or to the system's log.
_PLAIN = {
    "logging.Formatter",
    "logging.Filter",
    "logging.StreamHandler",
    "logging.FileHandler",
    "logging.NullHandler",
    "logging.handlers.RotatingFileHandler",
    "logging.handlers.TimedRotatingFileHandler",
    "logging.handlers.WatchedFileHandler",
    "logging.handlers.SysLogHandler",
}
_STREAMS = {"ext://sys.stdout", "ext://sys.stderr"}


def check(section: Any, allow: tuple[str, ...], file: str = "") -> dict[str, Any]:  # noqa: ANN401
    """Return what `logging.config.dictConfig` takes, with nothing in it that was not allowed."""
    if not isinstance(section, dict):
        raise wrong(file, 0, "`logging` is no mapping")
    found: dict[str, Any] = _walk(section, allow, file)
    # Ours are there before the file is read.
    return {"disable_existing_loggers": False, **found}


def _walk(value: Any, allow: tuple[str, ...], file: str) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _entry(key, one, allow, file) for key, one in value.items()}
    if isinstance(value, list):
        return [_walk(one, allow, file) for one in value]
    if isinstance(value, Element):
        message = f"`{value.kind}` has no meaning in `logging`"
        raise wrong(file, value.line, message, hint="a class is named by `class` or `()` there")
    if isinstance(value, str) and value.startswith("ext://") and value not in _STREAMS:
        raise wrong(file, 0, f"`{value}` is not one of {', '.join(sorted(_STREAMS))}")
    return value


def _entry(key: Any, value: Any, allow: tuple[str, ...], file: str) -> Any:  # noqa: ANN401
    if key not in {"()", "class"} or isinstance(value, dict):
        return _walk(value, allow, file)
    if not isinstance(value, str):
        raise wrong(file, 0, f"`{key}` of `logging` is no name")
    if value in _PLAIN:
        return value
    if value in _OURS:
        if key == "class":
            # That way Python hands over arguments which these do not have; nor have COBalD's.
            raise wrong(file, 0, f"`{value}` is made by `()`, not by `class`")
        return _OURS[value]
    return foreign.find(value, allow) if key == "()" else _named(value, allow)


def _named(value: str, allow: tuple[str, ...]) -> str:
    foreign.find(value, allow)
    return value
