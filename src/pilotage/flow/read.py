"""Reading of workflows from TOML, JSON and legacy chains; errors name their position."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from pilotage.base import errors, text, toml
from pilotage.base.names import closest
from pilotage.bus.fields import Email, Route
from pilotage.bus.model import Chain, Input, Job
from pilotage.edge.handoff import Take
from pilotage.flow import check, template
from pilotage.flow.model import Flow, IntRange, Notify, Step
from pilotage.flow.schema import FlowText, step
from pilotage.rule.draft import convert
from pilotage.rule.span import key
from pilotage.rule.trigger import texts

Form = Literal["toml", "json"]

#: The most bytes of a definition, and how often it may read files of flows.
MOST_FLOW_BYTES = 32 << 20
MOST_FLOW_READS = 1000
_LINE = re.compile(r"at line (\d+)")


def read(
    source: str | bytes, *, form: Form = "toml", base: Path | None = None,
    params: Mapping[str, Any] | None = None, file: str = "", recipes: bool = True,
    later: bool = False, files: set[str] | None = None,
) -> Flow:  # fmt: skip
    """Read a workflow.

    Files that it names are looked for in `base`; without one it may name none. `params` are values
    of its parameters; with `later` they come when it starts, by `given`. `file` is what mistakes
    call it. Unless `recipes`, its steps may run applications of sites and flows alone: what came
    from elsewhere runs no program of its own here. Workflows that are read with it are added to
    `files`.
    """
    if len(source) > MOST_FLOW_BYTES:
        message = f"the workflow has {len(source)} bytes; the limit is {MOST_FLOW_BYTES}"
        raise errors.BadFlow(message, hint="`each` makes many tasks of one step", file=file)
    try:
        written = source.decode() if isinstance(source, bytes) else source
    except UnicodeDecodeError as error:
        raise errors.BadFlow(f"this is not text: {error}", file=file) from None
    with _placed(file, written if form == "toml" else ""):
        data = _toml(written) if form == "toml" else _json(written)
        own = (base / Path(file).name,) if base is not None and file else ()
        reader = _Reader(base, recipes=recipes, files=own, found=files)
        return _whole(data, reader, None if later else params or {})


def from_file(file: str, found: set[str]) -> dict[str, Any]:
    """Read the workflow that a rule starts, as plain values: its parameters get theirs by `given`.

    The files of workflows that it names are added to `found`.
    """
    path = Path(file)
    flow = read(
        path.read_bytes(), form="json" if path.suffix == ".json" else "toml", base=path.parent,
        file=file, later=True, files=found,
    )  # fmt: skip
    # As the store will have it: a rule that was read again is no other one.
    plain: dict[str, Any] = text.load(text.dump(flow))
    return plain


def given(flow: Flow, values: Mapping[str, Any]) -> Flow:
    """Set the parameters of a workflow that was read with `later`."""
    like = {name: _like(flow.params.get(name), one, name) for name, one in values.items()}
    missing = [name for name, usual in flow.params.items() if usual is None and name not in like]
    if missing:
        raise errors.BadFlow(f"the parameter `{missing[0]}` has no value")
    return msgspec.structs.replace(flow, params=flow.params | like)


def from_dict(
    data: object, *, base: Path | None = None, params: Mapping[str, Any] | None = None,
    recipes: bool = True,
) -> Flow:  # fmt: skip
    """Read a workflow from decoded keys and values."""
    with _placed("", ""):
        return _whole(data, _Reader(base, recipes=recipes), params or {})


def _whole(data: object, reader: _Reader, params: Mapping[str, Any] | None) -> Flow:
    flow = check.complete(_flow(data, "", reader, params))
    check.check(flow)
    return flow


class _Reader:
    """Context to read the steps of a flow, and flows within them."""

    def __init__(
        self, base: Path | None, *, recipes: bool, files: tuple[Path, ...] = (), depth: int = 0,
        counts: tuple[Iterator[int], Iterator[int]] | None = None, found: set[str] | None = None,
    ) -> None:  # fmt: skip
        self.base = base
        self._found: set[str] = set() if found is None else found
        self.recipes = recipes
        # The files that led here, each named by the one before it.
        self._files = files
        self._depth = depth
        # Few files can name each other very often: what counts is the sum, of steps and of files.
        self._counts = counts or (itertools.count(1), itertools.count(1))

    def one_more(self) -> None:
        """Count a step, and refuse too many."""
        if next(self._counts[0]) > check.MOST_STEPS:
            message = f"the flow has more than {check.MOST_STEPS} steps, with nested flows"
            raise errors.BadFlow(message, hint="`each` makes many tasks of one")

    def within(self, name: str, found: str | dict[str, Any], given: Mapping[str, Any]) -> Flow:
        """Read a flow that is a step: a table, or a file beside this one."""
        if self._depth >= check.DEEPEST:
            raise errors.BadFlow(f"flows are nested more than {check.DEEPEST} deep")
        if isinstance(found, dict):
            return _flow(found, name, self._below(self.base), given, inside=True)
        if self.base is None:
            raise errors.BadFlow("there is no file here", hint="write the flow as a table")
        file = self.base / found
        if any(_same(one, file) for one in self._files):
            path = " → ".join(f"`{one.name}`" for one in (*self._files, file))
            hint = "take it out of one of them; `each` does the same many times"
            raise errors.BadFlow(f"these files name each other in a circle: {path}", hint=hint)
        if next(self._counts[1]) > MOST_FLOW_READS:
            message = f"files of flows are read more than {MOST_FLOW_READS} times"
            raise errors.BadFlow(message, hint="`each` makes many tasks of one flow")
        self._found.add(str(file))
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            message = f"the flow {found!r} cannot be read: {error}"
            hint = f"it is looked for in {self.base}"
            raise errors.BadFlow(message, hint=hint) from None
        inner = self._below(file.parent, file)
        with _placed(str(file), "" if file.suffix == ".json" else source):
            data = _json(source) if file.suffix == ".json" else _toml(source)
            return _flow(data, name, inner, given, inside=True)

    def _below(self, base: Path | None, *files: Path) -> _Reader:
        return _Reader(
            base, recipes=self.recipes, files=(*self._files, *files), depth=self._depth + 1,
            counts=self._counts, found=self._found,
        )  # fmt: skip


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _flow(
    data: object, name: str, reader: _Reader, given: Mapping[str, Any] | None, *,
    inside: bool = False,
) -> Flow:  # fmt: skip
    if not isinstance(data, dict):
        raise errors.BadFlow("a workflow is a table", hint="write `[step.NAME]`")
    written = convert(data, FlowText)
    params = _params(written, given, inside=inside)
    steps = {}
    for one, table in written.step.items():
        reader.one_more()
        with key("step", one):
            if not isinstance(table, dict):
                raise errors.BadFlow("a step is a table", hint=f"write `[step.{one}]`")
            steps[one] = step(one, table, written.step, reader)
    with key("notify"):
        notify = _notify(written.notify)
    return Flow(
        name=written.name or name,
        description=written.description,
        params=params,
        steps=steps,
        outputs=written.outputs,
        to=written.to,
        # An address that names the flow has a folder for each already.
        runs=bool(written.to) and "flow" not in template.names(written.to),
        retries=written.retries,
        notify=notify,
    )


def _params(written: FlowText, given: Mapping[str, Any] | None, *, inside: bool) -> dict[str, Any]:
    """Return the parameters with their values; those of a flow within come when it begins."""
    required = texts(written.required)
    known = {**dict.fromkeys(required), **written.params}
    if given is None:
        return known
    for name in given:
        if name not in known:
            message = f"the flow has no parameter `{name}`"
            raise errors.BadFlow(message, hint=closest(name, known))
    missing = [name for name in required if name not in given and known[name] is None]
    if missing:
        message = f"the parameter `{missing[0]}` has no value"
        how = "write it among the `parameters`" if inside else f"--param {missing[0]}=VALUE"
        raise errors.BadFlow(message, hint=how)
    if inside:
        return known
    return known | {name: _like(known[name], value, name) for name, value in given.items()}


def _like(usual: object, value: Any, name: str) -> Any:  # noqa: ANN401 - any JSON value
    """Convert text given for a parameter to the type of its default."""
    if usual is None or isinstance(usual, str) or not isinstance(value, str):
        return value
    try:
        found = text.load(value)
    except ValueError:
        found = value
    numbers = isinstance(usual, int | float) and not isinstance(usual, bool)
    fits = isinstance(found, int | float) if numbers else isinstance(found, type(usual))
    if not fits or (numbers and isinstance(found, bool)):
        message = f"the parameter `{name}` is usually {usual!r}, and cannot be {value!r}"
        raise errors.BadFlow(message[:400], hint="give a value of the same type")
    return found


def _notify(data: dict[str, Any]) -> Notify:
    known = Notify.__struct_fields__
    for name in data:
        if name not in known:
            with key(name):
                raise errors.BadFlow(f"there is no key {name!r}", hint=closest(name, known))
    try:
        found = msgspec.convert(data, Notify)
    except msgspec.ValidationError as error:
        raise errors.BadFlow(str(error)) from None
    if not is_route(found.reply):
        with key("reply"):
            message = f"{found.reply[:40]!r} is no routing key"
            raise errors.BadFlow(message, hint="such as `status.me`: letters, digits, `_.:-`")
    if not _is(found.email, Email):
        with key("email"):
            message = f"{found.email[:40]!r} is no e-mail address"
            raise errors.BadFlow(message, hint="one address, such as `me@example.org`")
    return found


def is_route(words: str) -> bool:
    """Return whether a routing key is valid; an empty one is."""
    return _is(words, Route)


def _is(words: str, kind: Any) -> bool:  # noqa: ANN401 - a type with its pattern
    try:
        msgspec.convert(words, kind)
    except msgspec.ValidationError:
        return False
    return True


def _toml(source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(source)
    except RecursionError:
        raise errors.BadFlow("the workflow is nested too deeply") from None
    except ValueError as error:
        hint = "text stands in quotes, lists in brackets: https://toml.io"
        place = _LINE.search(str(error))
        line = int(place[1]) if place else None
        raise errors.BadFlow(f"not TOML: {error}", hint=hint, line=line) from None


def _json(source: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(source, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise errors.BadFlow(f"not JSON: {error.msg}", line=error.lineno) from None
    except ValueError as error:
        raise errors.BadFlow(f"not JSON: {error}") from None
    except RecursionError:
        raise errors.BadFlow("the workflow is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a table, and refuse duplicate keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise errors.BadFlow(f"the key {twice!r} is there twice", hint="take one of them out")
    return found


@contextmanager
def _placed(file: str, source: str) -> Iterator[None]:
    """Add the file and the line to errors, as `BadFlow`."""
    try:
        yield
    except errors.BadRule as error:
        line = error.line
        if not error.file and source and error.at:
            line = toml.line_of(source, error.at.split("."))
        found = errors.BadFlow(
            error.message, hint=error.hint, file=error.file or file, line=line, at=error.at
        )
        raise found from None


_ODD = re.compile(r"[^\w-]+")
_NUMBER = re.compile(r"argo:(\d+)")
#: The longest name of a step.
_LONGEST = 80


def from_chain(chain: Chain) -> Flow:
    """Return the flow of a chain: steps `1-NAME`, `2-NAME` and so on."""
    steps: dict[str, Step] = {}
    before = ""
    for number, job in enumerate(chain.jobs, 1):
        name = f"{number}-{_word(job.name or job.application)}"
        steps[name] = _step(job, before, () if before else chain.inputs)
        before = name
    known = _NUMBER.fullmatch(chain.key)
    to = chain.outputs or chain.jobs[-1].outputs
    flow = Flow(
        name=_title(chain.name) or "chain",
        description=chain.description,
        steps=steps,
        outputs={"last": before},
        to=_plain(to[0].url) if to else "",
        notify=Notify(
            reply=chain.reply,
            speech="argo" if chain.speech == "argo" else "pilotage",
            number=int(known[1]) if known else 0,
            email=chain.email,
        ),
    )
    check.check(flow)
    return flow


def _step(job: Job, before: str, first: tuple[Input, ...]) -> Step:
    own = [Take(url=_plain(one.url), path=_plain(one.path), sha256=one.sha256)
           for one in (*first, *job.inputs)]  # fmt: skip
    shape = job.shape
    return Step(
        needs=(before,) if before else (),
        sites=(job.site,),
        application=job.application,
        parameters=_plain(job.parameters),
        config=_plain(job.config),
        config_file=job.config_file,
        env=_plain(job.env),
        inputs=(*([Take(step=before)] if before else []), *own),
        outputs=("",),
        nodes=IntRange(shape.nodes_least or job.nodes, job.nodes),
        tasks=job.tasks,
        time=IntRange(shape.time_least or job.wall_time, job.wall_time),
        work=shape.work,
        cpus=job.resources.cpus,
        memory=job.resources.memory,
        gpus=job.resources.gpus,
        disk=job.resources.disk,
        queue=job.queue,
        project=job.project,
        options=_plain(job.options),
    )


def _word(name: str) -> str:
    return _ODD.sub("-", name).strip("-")[:_LONGEST] or "job"


def _title(name: str) -> str:
    """Return a valid name of a flow: legacy names can be anything."""
    return "".join(one if one.isprintable() else " " for one in name)[: check.LONGEST].strip()


def _plain(value: Any) -> Any:  # noqa: ANN401 - texts in whatever holds them
    """Escape braces: a legacy definition has no templates."""
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(inner) for inner in value)
    return value
