"""Build a pipeline from a COBalD document."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.compat.cobald import document, foreign, logs
from pilotage.compat.cobald.document import Element, wrong
from pilotage.compat.cobald.names import KNOWN, TAGS, Maker
from pilotage.pool.controller import Linear, RelativeSupply
from pilotage.pool.decorator import Standardiser
from pilotage.pool.model import Pool, Target
from pilotage.pool.pipeline import Bound, Pipeline, Stage, StageChain, adopt


def advise(made: Any) -> tuple[str, ...]:  # noqa: ANN401 - a pipeline or a pool
    """Return what is likely to disappoint."""
    if not isinstance(made, Pipeline):
        return ("there is no controller: nothing decides here",)
    limits, controller, found = _limits(made), made.controller, []
    bounded = any(one.maximum < math.inf or one.surplus < math.inf for one in limits)
    if isinstance(controller, Linear) and not bounded:
        found.append(
            "nothing bounds the demand, which grows for as long as the pool is full and cannot be "
            "had: set `surplus` or `maximum` of a Standardiser"
        )
    stuck = isinstance(controller, RelativeSupply) and not controller.first
    if stuck and not any(one.minimum > 0 for one in limits):
        found.append(
            "a multiple of nothing is nothing: once empty, the pool stays so; set `minimum` of a "
            "Standardiser, or `first`"
        )
    if isinstance(controller, (Linear, RelativeSupply)) and controller.low_utilisation > 0.8:
        found.append(
            f"low_utilisation is {controller.low_utilisation:g}: a pool that is full of jobs which "
            "use little of one feature, such as memory, shrinks all the same"
        )
    return tuple(found)


def _limits(made: Pipeline) -> list[Standardiser]:
    found, below = [], made.target
    while isinstance(below, Bound):
        if isinstance(below.decorator, Standardiser):
            found.append(below.decorator)
        below = below.target
    return found


class Loaded(msgspec.Struct, frozen=True):
    """What a configuration says."""

    #: What is steered; a pool alone if no controller is named.
    pipeline: Any
    #: For `logging.config.dictConfig`; nothing if the file says nothing.
    logging: dict[str, Any] | None
    #: Other sections, as they were asked for.
    sections: dict[str, Any]
    #: What the file says and may not mean.
    advice: tuple[str, ...] = ()


def load(
    text: str,
    *,
    file: str = "",
    allow: tuple[str, ...] = (),
    makers: Mapping[str, Maker] | None = None,
    sections: tuple[str, ...] = (),
    prepare: Callable[[dict[str, Any]], object] | None = None,
    born: Callable[[Any], object] | None = None,
) -> Loaded:
    """Read a configuration of COBalD.

    `allow` has dotted names of others that may be imported, each in full or as `package.*`;
    `makers` what else makes something, by `!Tag` or dotted name; `sections` what else may be in
    the file, which `prepare` is handed before anything is made; `born` is handed each pool that
    code of others makes.
    """
    top = document.read(text, file)
    listed, logging = top.pop("pipeline", None), top.pop("logging", None)
    unknown = sorted(str(name) for name in top.keys() - set(sections))
    if unknown:
        raise wrong(file, 0, f"there is a section `{unknown[0]}` that nothing here reads")
    if not isinstance(listed, list) or not listed:
        raise wrong(file, 0, "there is no `pipeline`, which is a list whose last is a pool")
    if prepare is not None:
        prepare(top)
    try:
        made = _Builder(file, allow, dict(makers or {}), born).pipeline(listed, "pipeline")
    except _Placed as placed:
        raise placed.error from placed.__cause__
    section = None if logging is None else logs.check(logging, allow, file)
    return Loaded(made, section, top, advise(made))


def load_file(path: str, **options: Any) -> Loaded:  # noqa: ANN401 - those of `load`
    """Read a configuration from a file."""
    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"{path} cannot be read: {error}") from None
    return load(text, file=path, **options)


class _Placed(Exception):
    """An error that names its place already."""

    def __init__(self, error: errors.ConfigError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(eq=False)
class _Builder:
    """Makes what elements say, the last of a list first."""

    _file: str
    _allow: tuple[str, ...]
    _makers: dict[str, Maker]
    _born: Callable[[Any], object] | None

    def pipeline(self, listed: list[Any], where: str) -> Pipeline | Target:
        """Join a list; the last is a pool."""
        *above, pool = listed
        with self._at(pool, f"{where}[{len(above)}]"):
            built: Any = _pool(self.make(pool))
        for place in reversed(range(len(above))):
            with self._at(above[place], f"{where}[{place}]"):
                built = _join(self.make(above[place], last=False), built)
        return built  # type: ignore[no-any-return]

    def make(self, item: Any, *, last: bool = True) -> Any:  # noqa: ANN401
        """Make what an element says; plain values stay as they are."""
        if isinstance(item, list):
            return [self.make(one) for one in item]
        if isinstance(item, dict):
            if list(item) == ["pipeline"] and isinstance(item["pipeline"], list):
                return self.pipeline(item["pipeline"], "pipeline")
            return {key: self.make(value) for key, value in item.items()}
        if not isinstance(item, Element):
            return item
        maker = self._maker(item)
        args = tuple(self.make(one, last=last) for one in item.args)
        keys = {key: self._key(key, value) for key, value in item.keys.items()}
        if maker is not None:
            return maker(*args, **keys)
        name = (foreign.tagged(item.tag) if item.tag else item.kind) or ""
        if not name:
            raise errors.ConfigError(f"there is no tag `{item.kind}`", hint=_tags())
        found = foreign.find(name, self._allow)
        if not last:
            return foreign.stand(found, args, keys)
        made = found(*args, **keys)
        if self._born is not None:
            self._born(made)
        return made

    def _maker(self, item: Element) -> Maker | None:
        if item.kind in self._makers:
            return self._makers[item.kind]
        return TAGS.get(item.tag) if item.tag else KNOWN.get(item.kind)

    def _key(self, key: str, value: Any) -> Any:  # noqa: ANN401
        if key == "factory" and isinstance(value, Element):
            return lambda: self.make(value)
        return self.make(value)

    @contextmanager
    def _at(self, item: Any, where: str) -> Iterator[None]:  # noqa: ANN401
        """Name the place in every error."""
        line = item.line if isinstance(item, Element) else 0
        kind = f" {item.kind}" if isinstance(item, Element) else ""
        try:
            yield
        except _Placed:
            raise
        except errors.PilotageError as error:
            message = f"{where}{kind}: {error.message}"
            raise _Placed(wrong(self._file, line, message, hint=error.hint)) from None
        except Exception as error:
            # Whatever code of others raises, it is their configuration that is wrong.
            raise _Placed(wrong(self._file, line, f"{where}{kind}: {error}")) from error


def _join(made: Any, under: Any) -> Any:  # noqa: ANN401
    if not isinstance(made, (Stage, StageChain)):
        raise errors.ConfigError(f"{type(made).__name__} cannot stand above a pool")
    if isinstance(under, Pipeline):
        raise errors.ConfigError("only the first of a pipeline decides")
    return made >> under


def _pool(made: Any) -> Target:  # noqa: ANN401
    if isinstance(made, Stage) or not isinstance(made, (Target, Pool)):
        raise errors.ConfigError(
            f"{type(made).__name__} is no pool", hint="the last of a pipeline is a pool"
        )
    return adopt(made)


def _tags() -> str:
    return "there are " + ", ".join(f"!{name}" for name in TAGS)
