"""Turn calls and commands into job definitions."""

from __future__ import annotations

import glob
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pilotage.base import errors
from pilotage.client import file, function, options
from pilotage.client.file import File
from pilotage.client.options import Options
from pilotage.job import model as job
from pilotage.job.model import JobSpec
from pilotage.link.codec import LONGEST

_PLAIN = frozenset({int, str, bool, type(None)})


class FilesError(Exception):
    """There are files among the arguments; `file.lift` takes them out."""


def _other(value: Any) -> Any:  # noqa: ANN401 - whatever JSON has no word for
    if isinstance(value, File):
        raise FilesError
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_strict = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_other
).encode
_fast = msgspec.json.Encoder().encode


def encode_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Write the arguments of one call."""
    for value in args:
        if type(value) not in _PLAIN:
            break
    else:
        if not kwargs:
            try:
                return _fast((args, kwargs))
            except (UnicodeEncodeError, OverflowError):
                pass  # the careful way says what is wrong
    return _carefully(args, kwargs)


def _carefully(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    hint = "arguments are numbers (not NaN), text, lists, dicts with text as keys, `pilotage.File`"
    try:
        data = _strict([args, kwargs]).encode()
    except UnicodeEncodeError:
        message = "an argument is text that is not Unicode"
        raise errors.UsageError(message, hint="pass such a file name in another way") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.UsageError(f"an argument is not JSON: {error}", hint=hint) from None
    if len(data) > LONGEST // 2:
        message = f"the arguments of one call take {len(data)} bytes"
        raise errors.TooLarge(message, hint="write large data to a file, and pass `pilotage.File`")
    return data


#: What can be submitted: a function, a program with its arguments, or a definition.
Work = Callable[..., Any] | Sequence[str] | JobSpec
_MOST = 1000
_OPTIONS = frozenset(Options.__struct_fields__)


class WrittenCall(NamedTuple):
    """A call that is a job of its own if it has a binding; else it shares one with others."""

    spec: bytes
    call: bytes
    binding: bytes = b""


class Definitions:
    """The definitions of functions as JSON; each function is looked at once."""

    def __init__(self, options_: Options) -> None:
        self._options = options_
        self._recipes: dict[int, tuple[object, job.Call]] = {}
        self._known: dict[tuple[int, int, int], tuple[object, bytes]] = {}
        #: Whether all calls declare files, so that each is a job of its own.
        self._declares = bool(options_.inputs or options_.outputs or options_.optional_outputs)

    def changed(self, changes: dict[str, Any]) -> Definitions:
        """Return definitions with other options, which know the same functions."""
        other = Definitions(options.change(self._options, changes))
        other._recipes = self._recipes
        return other

    def of_call(
        self, work: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> WrittenCall:
        """Write one call of a function; one with files is a job of its own."""
        try:
            call = encode_call(args, kwargs)
        except FilesError:
            return self._with_files(work, args, kwargs)
        found = WrittenCall(self._of_function(work), call)
        return _alone(found) if self._declares else found

    def of_calls(
        self, work: Callable[..., Any], rows: Sequence[Sequence[Any]]
    ) -> tuple[bytes, list[bytes], list[WrittenCall]]:
        """Write many calls: those that may share jobs, or else a job for each."""
        if self._options.outputs and len(rows) > 1:
            message = "all calls would write the same outputs"
            raise errors.UsageError(message, hint="give each `pilotage.File(…, output=True)`")
        try:
            calls = [] if self._declares else [encode_call(args, {}) for args in rows]
        except FilesError:
            calls = []
        own = [] if calls else [_alone(self.of_call(work, args, {})) for args in rows]
        return self._of_function(work), calls, own

    def of_job(self, work: Sequence[str] | JobSpec, args: Sequence[Any]) -> bytes:
        """Write the definition of a job that is no call."""
        if args:
            message = "only functions take arguments"
            raise errors.UsageError(message, hint="a command is one list of text")
        if isinstance(work, JobSpec):
            return msgspec.json.encode(work)
        if isinstance(work, str):
            message = "a command is a list of text, not one text"
            raise errors.UsageError(message, hint="there is no shell: use [program, argument, …]")
        app = self._options.app
        recipe = options.application(app, work) if app else options.command(work)
        return msgspec.json.encode(self._options.spec(recipe, app or work[0].rpartition("/")[2]))

    def _with_files(
        self, work: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> WrittenCall:
        plain, found = file.lift(args, kwargs)
        call = encode_call(*plain)
        spec = self._of_function(work, len(found.reads), len(found.writes))
        data = {
            "calls": [msgspec.Raw(call)],
            "files": found.places,
            "reads": [glob.escape(one) for one in found.reads],
            "writes": found.writes,
        }
        return WrittenCall(spec, call, msgspec.json.encode({"data": data}))

    def _of_function(self, work: Callable[..., Any], reads: int = 0, writes: int = 0) -> bytes:
        """Write the definition of the calls of a function that have as many files."""
        found = self._known.get((id(work), reads, writes))
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            recipe = self._recipe(work)
            spec = self._options.spec(recipe, recipe.function)
            # Each call names its own files.
            spec = msgspec.structs.replace(
                spec,
                inputs=(*spec.inputs, *(f"{{message.reads.{at}}}" for at in range(reads))),
                outputs=spec.outputs
                | {f"argument-{at}": f"{{message.writes.{at}}}" for at in range(writes)},
            )
            found = self._known[id(work), reads, writes] = (work, msgspec.json.encode(spec))
        return found[1]

    def _recipe(self, work: Callable[..., Any]) -> job.Call:
        known = self._recipes.get(id(work))
        if known is None:
            if len(self._recipes) >= _MOST:
                self._recipes.clear()
            # The function is held too, so that its number is not given to another.
            known = self._recipes[id(work)] = (work, function.recipe(work))
        return known[1]


def _alone(one: WrittenCall) -> WrittenCall:
    """Make a call a job of its own."""
    return one if one.binding else one._replace(binding=b'{"data":{"calls":[%b]}}' % one.call)


def options_among(work: Work, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Split options from the arguments of a function; its own parameters win."""
    if isinstance(work, JobSpec):
        message = "a definition has its options in itself"
        raise errors.UsageError(message, hint="`msgspec.structs.replace` changes one")
    if not callable(work):
        return dict(kwargs)
    named = _OPTIONS.intersection(kwargs)
    if not named:
        return {}
    try:
        takes = inspect.signature(work).parameters
    except ValueError:
        # A built-in function that does not say what it takes.
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in takes.values()):
        return {}
    return {name: kwargs[name] for name in named if name not in takes}
