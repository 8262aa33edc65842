"""The section on logging, which may name classes too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotage.compat.cobald import foreign
from pilotage.compat.cobald.document import Element, wrong
from pilotage.compat.cobald.formats import JsonFormatter, LineProtocolFormatter

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
