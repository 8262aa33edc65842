"""The policy of an application: a verdict on a job with all its reasons.

The caller names the user, from the certificate that the broker has verified; a message that names
its own owner is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pilotage.agent.app import command, hosts
from pilotage.agent.app.model import Application, AppLimits
from pilotage.base import units
from pilotage.bus.model import BatchQueue, Job
from pilotage.edge import order


class PolicyVerdict(msgspec.Struct, frozen=True):
    """Whether a job may run, and all reasons against it."""

    reasons: tuple[str, ...] = ()
    #: Whether all of them are limits, which the site may change.
    limits: bool = False

    @property
    def allowed(self) -> bool:
        """Whether there is no reason against it."""
        return not self.reasons


def judge(app: Application, job: Job, user: str, *, live: int = 0) -> PolicyVerdict:
    """Judge a job of a user who has `live` jobs of this application already."""
    limits = app.limits_of(user)
    bounds = [
        *_room(app, job, user, live, limits),
        *_size(job, limits),
        *_queues(job, limits),
        *_cores(app, job, limits),
    ]
    others = [
        *_who(app, job, user),
        *_shape(job),
        *_options(job, limits),
        *_environment(app, job),
        *_config(app, job),
        *_staging(app, job),
        *_parameters(app, job),
    ]
    return PolicyVerdict((*bounds, *others), limits=bool(bounds) and not others)


def settle(app: Application, job: Job, user: str) -> Job:
    """Fill in what a job left open: the first queue and project that it may use, and the time.

    Else it would get the site's own, which may be more than its limits allow.
    """
    limits = app.limits_of(user)
    return msgspec.structs.replace(
        job,
        queue=job.queue or next(iter(limits.queues), ""),
        project=job.project or next(iter(limits.projects), ""),
        wall_time=job.wall_time or int(units.seconds(limits.time)),
    )


def waits(app: Application, queues: Sequence[BatchQueue], usual: str = "") -> list[str]:
    """Return why jobs that name no time would wait for ever: their queue allows less than they get.

    Jobs that name no queue go to the first of those that they may use, or to the `usual` one.
    """
    found = []
    for user in ("", *app.user):
        limits = app.limits_of(user)
        name = next(iter(limits.queues), usual)
        queue = next((one for one in queues if (one.name == name if name else one.default)), None)
        time = units.seconds(limits.time)
        if queue is not None and 0 < queue.time < time:
            at = f"[user.{user}]" if user and "time" in app.user[user] else "[limits]"
            found.append(
                f"a job that names no time gets {units.for_people(time)} and would wait for ever: "
                f"the queue `{queue.name}` allows {units.for_people(queue.time)}; set `time` of "
                f"`{at}`, or name another queue there"
            )
    return list(dict.fromkeys(found))


def _who(app: Application, job: Job, user: str) -> list[str]:
    if not user:
        return ["the sender is unknown"]
    if not any(_matches(one, user) for one in app.users):
        return [f"the user `{user}` may not use `{job.application}`"]
    return []


def _room(app: Application, job: Job, user: str, live: int, limits: AppLimits) -> list[str]:
    found = []
    if not app.enabled:
        found.append(f"the application `{job.application}` is disabled")
    if limits.jobs and live >= limits.jobs:
        found.append(f"the user `{user}` has {live} jobs; the limit is {limits.jobs}")
    return found


def _size(job: Job, limits: AppLimits) -> list[str]:
    asked = (
        ("nodes", job.nodes, limits.nodes),
        ("tasks", job.tasks, limits.tasks),
        ("resources.cpus", job.resources.cpus, limits.cpus),
        ("resources.gpus", job.resources.gpus, limits.gpus),
    )
    found = [
        f"`{key}` is {value}; the limit is {most}" for key, value, most in asked if value > most
    ]
    most = units.seconds(limits.time)
    if job.wall_time > most:
        found.append(f"`wall_time` is {job.wall_time} s; the limit is {most:g} s")
    if limits.memory and job.resources.memory > units.size(limits.memory):
        found.append(f"`resources.memory` is {job.resources.memory}, {limits.memory} is the most")
    return found


def _cores(app: Application, job: Job, limits: AppLimits) -> list[str]:
    """Refuse a pilot that would never fit; one that has to wait for others is kept."""
    asked = job.resources.cpus
    if app.takes != order.PILOT or asked <= limits.maximum:
        return []
    return [f"`resources.cpus` is {asked}, and {limits.maximum} cores are all that this hub has"]


def _shape(job: Job) -> list[str]:
    """Check a range of sizes; its upper end is checked against the limits elsewhere."""
    least, found = job.shape, []
    if least.nodes_least > job.nodes:
        found.append(f"`shape.nodes_least` is {least.nodes_least}, and `nodes` is {job.nodes}")
    if least.time_least > job.wall_time:
        found.append(f"`shape.time_least` is {least.time_least} s, `wall_time` {job.wall_time} s")
    if least.work > job.nodes * job.wall_time:
        most = job.nodes * job.wall_time
        found.append(f"`shape.work` is {least.work} node-seconds; its limits allow {most}")
    return found


def _queues(job: Job, limits: AppLimits) -> list[str]:
    return [
        f"`{key}` is `{value}`, which is none of {', '.join(known)}"
        for key, value, known in (
            ("queue", job.queue, limits.queues),
            ("project", job.project, limits.projects),
        )
        if value and known and value not in known
    ]


def _options(job: Job, limits: AppLimits) -> list[str]:
    return [
        f"`options` has `{one}`, which is not allowed here"
        for one in job.options
        if one not in limits.options and one.partition("=")[0] not in limits.options
    ]


def _environment(app: Application, job: Job) -> list[str]:
    return [
        f"`env` has {name}, which jobs may not set" for name in job.env if name not in app.env_allow
    ]


def _config(app: Application, job: Job) -> list[str]:
    if app.takes != "parameters":
        return order.reasons(app.takes, job)
    found = []
    if (job.config or job.config_file) and app.config is None:
        found.append("`config` is given, and the application reads none")
    if job.config and job.config_file:
        found.append("`config` and `config_file` are given, and only one is read")
    if job.config_file and (reason := command.outside(job.config_file)):
        found.append(f"`config_file` is not a file below the job's folder: {reason}")
    return found


def _staging(app: Application, job: Job) -> list[str]:
    found = []
    staged = [
        *(
            (f"inputs[{at}]", hosts.why_not_input(one, app.staging), one.path)
            for at, one in enumerate(job.inputs)
        ),
        *(
            (f"outputs[{at}]", hosts.why_not(one.url, app.staging), one.path)
            for at, one in enumerate(job.outputs)
        ),
    ]
    for key, refused, path in staged:
        if refused:
            found.append(f"`{key}.url` cannot be used: {refused}")
        if path and (reason := command.outside(path.removesuffix("/"))):
            found.append(f"`{key}.path` is not below the job's folder: {reason}")
    return found


def _parameters(app: Application, job: Job) -> list[str]:
    """Check parameters; a config may still provide missing ones."""
    given: dict[str, object] = dict(job.parameters)
    _, reasons = command.fill_values(app, given)
    if not (job.config or job.config_file):
        return reasons
    missing = {f"the parameter `{name}` is missing" for name in app.parameter if name not in given}
    return [reason for reason in reasons if reason not in missing]


def _matches(pattern: str, user: str) -> bool:
    words = ".*".join(re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(words, user, re.DOTALL) is not None
