"""Named crash points, at which tests kill the process to prove that nothing is lost."""

from __future__ import annotations

import os
import signal

#: Those on the way of a job through the batch system of a site and home again.
SITE = (
    "site.before_intent",
    "site.intent",
    "site.prepared",
    "site.submitted",
    "site.recorded",
    "site.fenced",
    "site.renewed",
    "site.ended",
    "site.staging_out",
    "site.home",
    "site.finished",
    "site.closed",
)
#: Those on the way of a message into the store of an agent, and of what it says onto the bus.
EDGE = (
    "edge.delivered",
    "edge.judged",
    "edge.committed",
    "edge.acked",
    "edge.published",
    "edge.sent",
    "edge.obeyed",
)
#: Those on the way of the data of such a job.
STAGE = (
    "stage.fetched",
    "stage.preprocessed",
    "stage.prepared",
    "stage.postprocessed",
    "stage.sent",
)
#: Those on the way of a job to a site with an agent, and of what the site says of it.
REMOTE = (
    "remote.claimed",
    "remote.written",
    "remote.published",
    "remote.sent",
    "remote.heard",
    "remote.home",
    "remote.ended",
)
#: Those on the way of an agent's new key to the hub, at the agent, at the hub and back.
LINK = ("link.proposed", "link.admitted", "link.settled")
#: Those on the way of a file from an agent into the hub's own port.
PORT = ("port.received", "port.shown")
#: Those on the way of a rule's job to its workflow, of a task of a workflow to its site, and of
#: what the site says of it.
FLOW = (
    "flow.begin",
    "flow.begun",
    "flow.posted",
    "flow.chosen",
    "flow.attempted",
    "flow.published",
    "flow.sent",
    "flow.adopted",
    "flow.news",
    "flow.followed",
    "flow.checked",
    "flow.ended",
    "flow.called_off",
    "flow.told",
)
#: The one on the way of the order of a pilot to a site with an agent.
ORDER = ("pilot.ordered",)
#: Those on the way of the data of a job to a pilot and home.
PILOT = ("pilot.staged", "pilot.arrived", "pilot.landed")
#: Every crash point of the product, in the order in which a file becomes a finished job.
POINTS = (
    "event.read",
    "event.matched",
    "intake.before_commit",
    "intake.after_commit",
    "job.before_claim",
    "job.claimed",
    "job.sent",
    "starter.received",
    "starter.claimed",
    "starter.spawned",
    "starter.reaped",
    "starter.reported",
    "result.received",
    "result.checked",
    "result.before_commit",
    "result.after_commit",
    "jobevent.before_commit",
    *SITE,
    *EDGE,
    *STAGE,
    *REMOTE,
    *LINK,
    *PORT,
    *FLOW,
    *ORDER,
    *PILOT,
)

_WHERE, _, _NTH = os.environ.get("PILOTAGE_CRASH_AT", "").partition(":")
_left = [int(_NTH or 1)]


def point(name: str) -> None:
    """Die here, as by `kill -9`, if the environment asks for it."""
    if name != _WHERE:
        return
    _left[0] -= 1
    if _left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
