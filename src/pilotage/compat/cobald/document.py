"""Read COBalD's YAML: plain values, and objects by `!Tag` or `__type__`.

Only the tree of the document is taken from the library: what a tag means is decided elsewhere, so
that no tag can make anything by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec

from pilotage.base import errors

#: A document that refers to its own parts may be small and yet without end.
_MOST = 100_000
_LONGEST = 1_000_000
#: Characters of a value that are shown when it is wrong.
_SHOWN = 60
_CORE = "tag:yaml.org,2002:"
_PLAIN = {_CORE + name for name in ("str", "int", "float", "bool", "null", "timestamp", "binary")}


class Element(msgspec.Struct, frozen=True):
    """Something to be made."""

    #: A tag such as `!Limiter`, or a dotted name.
    kind: str
    args: tuple[Any, ...]
    keys: dict[str, Any]
    #: Where it is in the file.
    line: int

    @property
    def tag(self) -> str:
        """Its tag without the mark, or nothing."""
        return self.kind[1:] if self.kind.startswith("!") else ""


def read(text: str, file: str = "") -> dict[str, Any]:
    """Read a document whose top is a mapping."""
    if len(text) > _LONGEST:
        raise errors.ConfigError(f"{file or 'the text'} is longer than {_LONGEST} characters")
    yaml = _library()
    try:
        loader = yaml.SafeLoader(text)
        try:
            top = loader.get_single_node()
            found = _Reader(yaml, loader, file).value(top) if top else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error)
        raise wrong(file, mark.line + 1 if mark else 0, f"this is no YAML: {what}") from None
    except RecursionError:
        raise wrong(file, 0, "the document is too deep, or contains itself") from None
    if not isinstance(found, dict):
        raise wrong(file, 1, "the top of the document is no mapping", hint="`pipeline:` is needed")
    return found


def wrong(file: str, line: int, message: str, hint: str = "") -> errors.ConfigError:
    """Return an error that names its place, as compilers do."""
    place = ":".join(part for part in (file, str(line) if line else "") if part)
    return errors.ConfigError(f"{place}: {message}" if place else message, hint=hint)


class _Reader:
    """Walks a tree of nodes, and counts."""

    def __init__(self, yaml: ModuleType, loader: Any, file: str) -> None:  # noqa: ANN401 - it has no types
        self._nodes = yaml.nodes
        self._loader = loader
        self._file = file
        self._seen = 0

    def value(self, node: Any) -> Any:  # noqa: ANN401
        """Return the value of a node, or what is to be made of it."""
        self._seen += 1
        line = node.start_mark.line + 1
        if self._seen > _MOST:
            raise wrong(self._file, line, f"the document has more than {_MOST} values")
        if node.tag.startswith("!") and len(node.tag) > 1:
            return self._tagged(node, line)
        if isinstance(node, self._nodes.MappingNode) and node.tag == _CORE + "map":
            return self._typed(self._mapping(node), line)
        if isinstance(node, self._nodes.SequenceNode) and node.tag == _CORE + "seq":
            return [self.value(one) for one in node.value]
        if isinstance(node, self._nodes.ScalarNode) and node.tag in _PLAIN:
            try:
                return self._loader.construct_object(node)
            except (ValueError, LookupError, AttributeError, OverflowError):
                # The library takes it for granted that a value is what its tag says.
                message = f"{node.value[:_SHOWN]!r} is not of the kind `{node.tag}`"
                raise wrong(self._file, line, message) from None
        raise wrong(self._file, line, f"values of the kind `{node.tag}` are not read")

    def _tagged(self, node: Any, line: int) -> Element:  # noqa: ANN401
        if isinstance(node, self._nodes.MappingNode):
            return Element(node.tag, (), self._named(self._mapping(node), line), line)
        if isinstance(node, self._nodes.SequenceNode):
            return Element(node.tag, tuple([self.value(one) for one in node.value]), {}, line)
        if node.value:
            message = f"`{node.tag}` takes a mapping or a list, not {node.value!r}"
            raise wrong(self._file, line, message)
        return Element(node.tag, (), {}, line)

    def _typed(self, found: dict[Any, Any], line: int) -> dict[Any, Any] | Element:
        if "__type__" not in found:
            return found
        kind, args = found.pop("__type__"), found.pop("__args__", [])
        if not isinstance(kind, str) or not kind or kind.startswith("!"):
            raise wrong(self._file, line, "`__type__` is not a dotted name")
        if not isinstance(args, list):
            raise wrong(self._file, line, "`__args__` is not a list")
        return Element(kind, tuple(args), self._named(found, line), line)

    def _mapping(self, node: Any) -> dict[Any, Any]:  # noqa: ANN401
        merged: dict[Any, Any] = {}
        own: dict[Any, Any] = {}
        for name, value in node.value:
            if name.tag == _CORE + "merge":
                # The first that has a key wins.
                for one in self._sources(value):
                    for key, found in self._mapping(one).items():
                        merged.setdefault(key, found)
                continue
            key = self.value(name)
            if isinstance(key, (list, dict, Element)):
                raise wrong(self._file, name.start_mark.line + 1, "a key must be a plain value")
            own[key] = self.value(value)
        return {**merged, **own}

    def _sources(self, node: Any) -> Iterator[Any]:  # noqa: ANN401
        listed = node.value if isinstance(node, self._nodes.SequenceNode) else [node]
        for one in listed:
            self._seen += 1
            line = one.start_mark.line + 1
            if not isinstance(one, self._nodes.MappingNode) or self._seen > _MOST:
                raise wrong(self._file, line, "`<<` takes a mapping or a list of them")
            yield one

    def _named(self, found: dict[Any, Any], line: int) -> dict[str, Any]:
        for key in found:
            if not isinstance(key, str):
                raise wrong(self._file, line, f"{key!r} is not the name of an argument")
        return found


def _library() -> ModuleType:
    try:
        import yaml
    except ImportError:
        message = "configurations of COBalD are written in YAML, which nothing here reads"
        raise errors.ConfigError(message, hint="pip install 'pilotage[pools]'") from None
    found: ModuleType = yaml
    return found
