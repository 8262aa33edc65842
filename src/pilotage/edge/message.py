"""Messages to a site with an agent: jobs, pilots and controls."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

import msgspec

from pilotage.base import errors, text
from pilotage.batch.job import relative
from pilotage.batch.pilot_request import PilotRequest
from pilotage.bus import wire
from pilotage.bus.model import Control, Input, Job, Output, Resources, Shape
from pilotage.edge import order
from pilotage.edge.order import PILOT, PilotOrder
from pilotage.job import template
from pilotage.job.model import App, Binding, Call, Command, JobSpec
from pilotage.match import submission

#: Characters of a name that sites accept, and of a reason.
_LONGEST = 200
_JOB, _PILOT = "job.", "pilot."


class HubIdentity(msgspec.Struct, frozen=True):
    """The identity of this hub at sites, and the topic of their answers."""

    #: What the keys of all its jobs begin with: other hubs may be the same user of the broker.
    hub: str
    #: The routing key; empty means each site's own.
    reply: str = ""

    def key(self, attempt: str) -> str:
        """Return the key of an attempt at its site."""
        return f"{self.hub}.{attempt}"

    def attempt(self, key: str) -> str:
        """Return the attempt with a key of a site; none if it is not of this hub."""
        hub, _, attempt = key.partition(".")
        return attempt if hub == self.hub else ""

    def answers(self, site: str) -> str:
        """Return the routing key of a site's answers."""
        return self.reply or f"status.{site}"


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data of a step of a workflow by URL, and text for a parser."""

    #: What the site fetches before it, pinned by digests, and sends away after it.
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    #: The folder of its outputs as readers name it, with a slash at the end; empty if it has none.
    place: str = ""
    #: Text for the parser of its application, or the input that holds it.
    config: str = ""
    config_file: str = ""
    #: Whether its workflow sends it to no other site: it waits for what its site may take later.
    waits: bool = False

    def of(self, number: int) -> Handoff:
        """Return what an attempt of its job has: each has a folder of its own."""
        if number == 1:
            return self
        outputs = tuple(
            msgspec.structs.replace(one, url=_apart(one.url, number)) for one in self.outputs
        )
        place = _apart(self.place, number) if self.place else ""
        return msgspec.structs.replace(self, outputs=outputs, place=place)


def _apart(url: str, number: int) -> str:
    return f"{url.rstrip('/')}~{number}/"


def handoff(binding: Binding) -> Handoff | None:
    """Return the data of a job if it is a step of a workflow."""
    return None if binding.handoff is None else msgspec.convert(binding.handoff, Handoff)


class RemoteJob(msgspec.Struct, frozen=True):
    """A job as a site gets it: all templates are filled, paths are those at the site."""

    application: str
    parameters: dict[str, Any]
    env: dict[str, str]
    #: By name, paths of declared outputs below the folder of the job.
    outputs: dict[str, str]
    optional: dict[str, str]
    #: The command or the function, for an application that takes such.
    config: str = ""


def attempt_key(job: int, number: int) -> str:
    """Name an attempt of a job; one of no job is a pilot, which is ordered once."""
    return f"{_JOB}{job}.{number}" if job else f"{_PILOT}{number}"


def remote(spec: JobSpec, binding: Binding, base: str, job: int) -> RemoteJob:
    """Fill the templates of a job for the folder that it will have at a site.

    That folder stands for the project's: `{path}` is relative to it, and `{base}` is `.`. Raises
    `UsageError` or `BadRule` for a job that no such site can run.
    """
    application = submission.application(spec.recipe)
    if not application:
        message = "a site with an agent runs only what its administrator registered"
        raise errors.UsageError(message, hint="name an application: `app`")
    if application == PILOT:
        hint = "`pilotage pool add` makes one that orders them"
        raise errors.UsageError("the application `pilot` is for pools of pilots", hint=hint)
    if isinstance(spec.recipe, App) and spec.recipe.args:
        message = "`args` cannot go to a site with an agent: its application defines them"
        raise errors.UsageError(message, hint="pass parameters instead")
    known = _keywords(binding, base, job)
    parameters = template.parameters(spec, binding, known)
    values = known | parameters
    own = isinstance(spec.recipe, App)
    return RemoteJob(
        application=application,
        config="" if own else _config(spec, binding, base, values),
        parameters={name: _plain(name, value) for name, value in parameters.items() if own},
        env={name: template.render(value, values) for name, value in spec.env.items()},
        outputs={name: _below(path, values, base) for name, path in spec.outputs.items()},
        optional={name: _below(path, values, base) for name, path in spec.optional_outputs.items()},
    )


def _config(spec: JobSpec, binding: Binding, base: str, values: dict[str, Any]) -> str:
    """Write the command or the function of a job."""
    cwd = template.render(spec.cwd, values).removeprefix(base.rstrip("/"))
    if posixpath.normpath(cwd) not in (".", "/"):
        message = f"a site with an agent has no folder {text.show(spec.cwd)}"
        raise errors.UsageError(message, hint="its jobs run in folders of their own")
    recipe = spec.recipe
    if isinstance(recipe, Command):
        first, *rest = template.argv(recipe.argv, values)
        if first.startswith(f"{base.rstrip('/')}/"):
            first = f"./{relative(first, base)}"
        return order.write_command([first, *rest])
    if not isinstance(recipe, Call):
        raise errors.UsageError("only programs and functions can be sent as they are")
    declared = spec.inputs or spec.outputs or spec.optional_outputs
    outputs = {**spec.outputs, **spec.optional_outputs}.values()
    written = [_below(path, values, base) for path in outputs]
    calls = binding.data or {"calls": [[[], template.parameters(spec, binding, values)]]}
    return order.write_function(recipe, {**calls, "alone": written} if declared else calls)


def _keywords(binding: Binding, base: str, job: int) -> dict[str, Any]:
    there = msgspec.structs.replace(
        binding,
        path=relative(binding.path, base) if binding.path else "",
        paths=tuple(relative(one, base) for one in binding.paths),
        other=relative(binding.other, base) if binding.other else "",
    )
    folder = posixpath.dirname(there.path) or "."
    return {
        **template.keywords(there, "", job), "base": ".", "dir": folder if there.path else "",
        **binding.match, **binding.sweep,
    }  # fmt: skip


def _plain(name: str, value: object) -> object:
    """Return a value that a message can carry."""
    if isinstance(value, str | int | float | bool):
        return value
    message = f"the parameter `{name}` is {text.show(text.dump(value))}: no application takes that"
    raise errors.UsageError(message, hint="a parameter is text, a number, true or false")


def _below(path: str, values: dict[str, Any], base: str) -> str:
    """Return a path below the folder of the job."""
    written = template.render(path, values)
    found = posixpath.normpath(written.removeprefix(base.rstrip("/") + "/"))
    if found.startswith(("/", "../")) or found in ("..", "."):
        message = f"the output {text.show(written)} is not below the project's folder"
        raise errors.UsageError(message, hint="jobs at a site write below `{base}`")
    return found


def outputs(one: RemoteJob, url: str) -> tuple[Output, ...]:
    """Return where a site sends the outputs of a job."""
    return tuple(Output(path=path, url=url, below=path) for path in one.outputs.values())


def job(
    one: RemoteJob, spec: JobSpec, data: Handoff, *, site: str, key: str, reply: str
) -> bytes:  # fmt: skip
    """Write the message of an attempt; raise `UsageError` for one that no site could accept."""
    needs, asked = spec.resources, spec.allocation
    plain: dict[str, Any] = {
        "v": 1, "kind": "job", "site": site, "application": one.application, "key": key,
        "name": line(spec.name), "parameters": one.parameters, "env": one.env,
        "config": data.config or one.config, "config_file": data.config_file,
        "resources": msgspec.to_builtins(
            Resources(
                cpus=needs.cpus, memory=needs.memory or 0, gpus=needs.gpus, disk=needs.disk or 0
            )
        ),
        "nodes": asked.nodes, "tasks": asked.tasks, "wall_time": int(needs.time or 0),
        "shape": msgspec.to_builtins(
            Shape(
                nodes_least=asked.shape.nodes_least, time_least=int(asked.shape.time_least),
                work=int(asked.shape.work),
            )
        ),
        "queue": asked.queue, "project": asked.account, "options": list(asked.extra),
        "inputs": msgspec.to_builtins(data.inputs), "outputs": msgspec.to_builtins(data.outputs),
        "reply": reply,
    }  # fmt: skip
    return _written(plain)


def _written(plain: dict[str, Any]) -> bytes:
    """Write the message of a job; raise `UsageError` for one that no site could accept."""
    try:
        body = wire.encode(wire.convert(plain, Job))
        # As its site will read it.
        wire.check(body, Job)
    except errors.BadMessage as error:
        raise errors.UsageError(f"no site would accept it: {error.message}") from None
    return body


def pilot(request: PilotRequest, asked: PilotOrder, *, site: str, key: str, reply: str) -> bytes:
    """Write the order of a pilot: the job of an application that the site has for that."""
    needs = Resources(cpus=request.cpus, memory=request.bytes or 0, gpus=request.gpus)
    return _written({
        "v": 1, "kind": "job", "site": site, "application": PILOT, "key": key,
        "name": asked.name, "config": text.dump(asked), "resources": msgspec.to_builtins(needs),
        "wall_time": int(request.seconds or 0), "queue": request.queue,
        "project": request.account, "reply": reply,
    })  # fmt: skip


def control(
    verb: str, site: str, keys: Sequence[str], address: HubIdentity, reason: str = ""
) -> tuple[str, bytes]:
    """Return the topic and body of a control message about attempts."""
    plain: dict[str, Any] = {
        "site": site, "verb": verb, "keys": [address.key(one) for one in keys],
        "reason": line(reason), "reply": address.answers(site),
    }  # fmt: skip
    return f"control.{site}", wire.encode(msgspec.convert(plain, Control))


def line(words: str) -> str:
    """Make a line of words that a message can carry."""
    if not words.isprintable():
        words = "".join(one if one.isprintable() else " " for one in words)
    return words[:_LONGEST]
