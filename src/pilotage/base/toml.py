"""TOML files that people write: decoded into structs, with the line of each mistake.

`tomllib` does not tell where a key stands, and msgspec names a faulty value in words only. So lines
are found by reading the keys of the source, and faulty keys by decoding field by field.
"""

from __future__ import annotations

import contextlib
import functools
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pilotage.base import durable, errors

SUFFIX = ".toml"

_T = TypeVar("_T", bound=msgspec.Struct)
_Keys = tuple[str, ...]

_WORD = re.compile(
    r'"""(?:\\.|[^\\])*?"""+'  # multi-line text
    r"|'''.*?'''+"
    r'|"(?:\\.|[^"\\\n])*"'  # text
    r"|'[^'\n]*'"
    r"|\#[^\n]*"  # comment
    r"|[\[\]{}=.,\n]"
    r"|[A-Za-z0-9_+:-]+"
    r"|.",
    re.DOTALL,
)


# -- decoding --------------------------------------------------------------------------------------


def decode(source: str, file: Path) -> dict[str, Any]:
    """Decode the text of a file."""
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        message = f"{file}: {error}"
        raise errors.ConfigError(message, hint="this is a mistake of TOML syntax") from error


def convert(found: dict[str, Any], kind: type[_T]) -> _T:
    """Convert a decoded file to a struct; an error names the key."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise errors.ConfigError(str(error), keys=fault(found, kind)) from error


def fault(value: object, kind: Any) -> _Keys:  # noqa: ANN401 - any annotation
    """Return the keys that lead to the first value that does not fit a type.

    They end at the table in which a key is missing, and at the list of which an item does not fit.
    """
    if not isinstance(value, dict):
        return ()
    members, closed = _members(value, kind)
    for key, one in value.items():
        member = members(key)
        if member is None:
            if closed:
                return (key,)
        elif not _fits(one, member):
            return (key, *fault(one, member))
    return ()


def _members(table: dict[str, Any], kind: Any) -> tuple[Callable[[str], Any], bool]:  # noqa: ANN401
    """Return what finds the type of a member of a table, and whether there are no others."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _members(table, typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        arms = typing.get_args(kind)
        if meant := next((one for one in arms if _is_meant(table, one)), None):
            return _members(table, meant)
        tags = [one.__struct_config__ for one in arms if _is_struct(one)]
        return {one.tag_field: _literal(*(each.tag for each in tags)) for one in tags}.get, False
    if origin is dict:
        return lambda _: typing.get_args(kind)[1], False
    if _is_struct(kind):
        known = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
        config = kind.__struct_config__
        if config.tag_field:
            known[config.tag_field] = _literal(config.tag)
        return known.get, config.forbid_unknown_fields
    return lambda _: None, False


def _is_meant(table: dict[str, Any], kind: Any) -> bool:  # noqa: ANN401 - any annotation
    """Return whether a table is meant to be one member of a union."""
    if _is_struct(kind):
        config = kind.__struct_config__
        return not config.tag_field or table.get(config.tag_field) == config.tag
    return typing.get_origin(kind) is dict


def _is_struct(kind: Any) -> bool:  # noqa: ANN401 - any annotation
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _literal(*values: object) -> Any:  # noqa: ANN401 - an annotation
    return typing.Literal[values]


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401 - any annotation
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


@contextlib.contextmanager
def at(*keys: str) -> Iterator[None]:
    """Name the keys of what is being checked in errors that come out of it."""
    try:
        yield
    except errors.ConfigError as error:
        error.keys = (*keys, *error.keys)
        raise
    except errors.UsageError as error:
        message = f"{error.message} - at `$.{'.'.join(keys)}`"
        raise errors.ConfigError(message, hint=error.hint, keys=keys) from None


@contextlib.contextmanager
def located(source: str, file: Path, hint: str) -> Iterator[None]:
    """Name the file and the line in errors; `hint` is for those without their own."""
    try:
        yield
    except (errors.ConfigError, errors.UsageError) as error:
        line = line_of(source, getattr(error, "keys", ()))
        place = f"{file}:{line}" if line else str(file)
        raise errors.ConfigError(f"{place}: {error}", hint=error.hint or hint) from error


# -- folders ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TomlFolder(Generic[_T]):
    """A folder of files `NAME.toml` that each describe one thing, such as a site or a pool."""

    #: Below the root of a project.
    folder: str
    kind: type[_T]
    #: What each file describes, such as `site`, and the page of the documentation on it.
    noun: str
    page: str
    #: How to make another one.
    hint: str
    #: Raises `ConfigError` for a name, or for values, that cannot be.
    check: Callable[[str, _T], None]
    #: Fills in what a person may leave out, before it is read.
    prepare: Callable[[dict[str, Any]], None] = lambda _: None
    #: The mode of new files, less the umask.
    mode: int = 0o666

    def file(self, root: Path, name: str) -> Path:
        """Return the file of one in the project at `root`."""
        return root / self.folder / f"{name}{SUFFIX}"

    def names(self, root: Path) -> list[str]:
        """List all by name, those with mistakes in their files too."""
        return names(root / self.folder)

    def read(self, root: Path, name: str) -> _T:
        """Read one."""
        file = self.file(root, name)
        try:
            if "/" in name:
                raise FileNotFoundError(name)
            source = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            known = ", ".join(self.names(root)) or "none yet"
            message = f"there is no {self.noun} `{name}`"
            raise errors.NotFound(message, hint=f"{self.noun}s are {known}; {self.hint}") from None
        except UnicodeDecodeError as error:
            raise errors.ConfigError(f"{file}: {error}") from error
        return self.parse(source, name, file)

    def read_all(self, root: Path) -> dict[str, _T]:
        """Read all of a project by name."""
        return {name: self.read(root, name) for name in self.names(root)}

    def parse(self, source: str, name: str, file: Path) -> _T:
        """Read the text of a file; an error names the line."""
        found = decode(source, file)
        with located(source, file, f"the page on {self.page} lists all settings"):
            self.prepare(found)
            made = convert(found, self.kind)
            self.check(name, made)
        return made

    def create(self, root: Path, name: str, text: str) -> Path:
        """Write the file of a new one; raise `Conflict` if there is one of that name."""
        file = self.file(root, name)
        file.parent.mkdir(exist_ok=True)
        try:
            durable.create(file, text, mode=self.mode)
        except FileExistsError:
            message = f"the {self.noun} `{name}` exists already"
            raise errors.Conflict(message, hint=f"change {file} as you like") from None
        return file


def names(folder: Path) -> list[str]:
    """List what the files of a folder describe, by name."""
    return sorted(file.stem for file in folder.glob(f"*{SUFFIX}") if file.is_file())


# -- lines -----------------------------------------------------------------------------------------


def line_of(source: str, path: Sequence[str]) -> int | None:
    """Return the line of a key, or else of the nearest table that holds it."""
    whole, begun = _index(source)
    wanted = tuple(path)
    if wanted in begun:
        return begun[wanted]
    holders = (whole.get(wanted[:length]) for length in range(len(wanted) - 1, 0, -1))
    return next((line for line in holders if line is not None), None)


@functools.lru_cache(maxsize=8)
def _index(source: str) -> tuple[dict[_Keys, int], dict[_Keys, int]]:
    """Return the lines of all keys, and those where anything that begins with a path begins."""
    whole: dict[_Keys, int] = {}
    begun: dict[_Keys, int] = {}
    for found, line in _keys(source):
        whole.setdefault(found, line)
        for length in range(1, len(found) + 1):
            begun.setdefault(found[:length], line)
    return whole, begun


def _keys(source: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the path and line of each table header and each key at the start of a line."""
    table: tuple[str, ...] = ()
    for line, words in _statements(source):
        if words[0] == "[":
            table = _dotted(words, "]")
            yield table, line
        elif "=" in words:
            yield table + _dotted(words, "="), line


def _statements(source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield what stands between line ends that are not inside of a value."""
    line, depth = 1, 0
    start = 1
    words: list[str] = []
    for word in _words(source):
        if word == "\n" and depth <= 0:
            if words:
                yield start, words
            words, depth = [], 0
        elif word.strip() and not word.startswith("#"):
            if not words:
                start = line
            words.append(word)
            depth += (word in "[{") - (word in "]}")
        line += word.count("\n")
    if words:
        yield start, words


def _words(source: str) -> Iterator[str]:
    for found in _WORD.finditer(source):
        yield found[0]


def _dotted(words: list[str], end: str) -> tuple[str, ...]:
    stop = words.index(end) if end in words else len(words)
    return tuple(_unquote(word) for word in words[:stop] if word not in "[.")


def _unquote(word: str) -> str:
    return word[1:-1] if word[:1] in ("'", '"') and len(word) >= 2 else word
