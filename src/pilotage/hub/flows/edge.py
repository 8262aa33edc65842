"""A task that runs at a site with an agent: the message that the site gets."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage import errors
from pilotage.bus import wire
from pilotage.bus.model import Control, Job, Resources
from pilotage.hub.flows.model import Order, Prepared, Unfit

#: Characters of a name that sites take, and of a reason.
_LONGEST = 200


class Address(msgspec.Struct, frozen=True):
    """How sites know this hub, and where they answer to."""

    #: What begins the keys of all its jobs: other hubs may be the same user of the broker.
    hub: str
    #: The routing key; empty means each site's own.
    reply: str = ""

    def key(self, attempt: str) -> str:
        """Return what a site knows an attempt by."""
        return f"{self.hub}.{attempt}"

    def attempt(self, key: str) -> str:
        """Return the attempt that a site speaks of; nothing if it is not of this hub."""
        hub, _, attempt = key.partition(".")
        return attempt if hub == self.hub else ""

    def answers(self, site: str) -> str:
        """Return where a site's answers come by."""
        return self.reply or f"status.{site}"


def job(order: Order, prepared: Prepared, address: Address) -> bytes:
    """Write the message of an attempt; one that no site could ever take is `Unfit`."""
    step = order.definition
    plain: dict[str, Any] = {
        "v": 1, "kind": "job", "site": order.site, "application": step.application,
        "key": address.key(order.key), "name": line(f"{order.name}/{order.step}"),
        "parameters": step.parameters, "config": step.config, "config_file": step.config_file,
        "env": step.env,
        "resources": msgspec.to_builtins(
            Resources(cpus=step.cpus, memory=step.memory, gpus=step.gpus, disk=step.disk)
        ),
        "nodes": step.nodes.most, "tasks": step.tasks, "wall_time": step.time.most,
        "shape": {
            "nodes_least": 0 if step.nodes.least == step.nodes.most else step.nodes.least,
            "time_least": 0 if step.time.least == step.time.most else step.time.least,
            "work": step.work,
        },
        "queue": step.queue, "project": step.project, "options": list(step.options),
        "inputs": msgspec.to_builtins(prepared.inputs),
        "outputs": msgspec.to_builtins(prepared.outputs), "reply": address.reply,
    }  # fmt: skip
    try:
        return wire.encode(wire.convert(plain, Job))
    except errors.BadMessage as error:
        raise Unfit(f"no site would take it: {error.message}") from None


def control(
    verb: str, site: str, keys: list[str], address: Address, reason: str = ""
) -> tuple[str, bytes]:
    """Write what is asked of a site about attempts; return its topic, too."""
    plain: dict[str, Any] = {
        "site": site, "verb": verb, "keys": [address.key(one) for one in keys],
        "reason": line(reason), "reply": address.answers(site),
    }  # fmt: skip
    return f"control.{site}", wire.encode(msgspec.convert(plain, Control))


def topic(site: str) -> str:
    """Return where the jobs of a site go."""
    return f"job.{site}"


def line(words: str) -> str:
    """Make a line of words that a message can carry."""
    return "".join(one if one.isprintable() else " " for one in words)[:_LONGEST]
