"""Everything that can be asked for, in one table."""

from __future__ import annotations

from typing import Any

from pilotage.flow.picture import Picture
from pilotage.hub.api import (
    about,
    ask,
    ends,
    flows,
    jobs,
    outside,
    pilots,
    pools,
    rules,
    sites,
    tell,
    tokens,
)
from pilotage.hub.api.call import Nothing, Route
from pilotage.hub.api.overview import Whole
from pilotage.pool.state import Taken
from pilotage.pool.view import Look
from pilotage.project.tokens import Scope
from pilotage.status.sites import Seen

PREFIX = "/api/v1"
_LARGE = 16 * 2**20
_READ, _USER, _ADMIN, _POOL = Scope.READ, Scope.USER, Scope.ADMIN, Scope.POOL


def table(whole: Whole) -> tuple[Route, ...]:
    """List all routes; `whole` is what some of them share."""
    return (
        _get("/overview", whole.show, tell.Overview, "Say how things stand."),
        _get("/jobs", jobs.index, tell.Jobs, "List jobs, the newest first.", query=ask.JobsAsk),
        Route(
            method="POST", path="/jobs", scope=_USER, kind="write", act=jobs.submit,
            says="Queue jobs, all or none; they are safe when this is answered.",
            body=ask.Submission, most=_LARGE, answer=tell.Numbers, status=201,
        ),
        _get("/jobs/{id}", jobs.show, tell.JobSheet, "Read all about a job.", named=ask.One),
        _get(
            "/jobs/{id}/explain", about.explain, tell.Why, "Say why a job is where it is.",
            named=ask.One,
        ),
        _get(
            "/jobs/{id}/story", about.told, tell.Told, "Tell all that happened to a job.",
            named=ask.One,
        ),
        _get(
            "/jobs/{id}/logs", about.log, tell.Written, "Read a part of what a job wrote.",
            named=ask.One, query=ask.LogAsk,
        ),
        _post("/jobs/{id}/cancel", jobs.cancel, tell.Became, "Call a job off.", _USER),
        _post("/jobs/{id}/hold", jobs.hold, tell.Became, "Keep a job from going on.", _USER),
        _post("/jobs/{id}/release", jobs.release, tell.Became, "Let a held job go on.", _USER),
        _post("/jobs/{id}/retry", jobs.retry, tell.Became, "Try a job again.", _USER),
        Route(
            method="GET", path="/ends", scope=_READ, kind="live", act=ends.wait,
            says="Read the ends of jobs, and wait for one.", query=ask.EndsAsk, answer=tell.Ends,
        ),
        _get(
            "/flows", flows.index, tell.Flows, "List workflows, the newest first.",
            query=ask.FlowsAsk,
        ),
        Route(
            method="POST", path="/flows", scope=_USER, kind="write", act=flows.submit,
            says="Start a workflow; it is safe when this is answered.", body=ask.NewFlow,
            most=_LARGE, answer=tell.FlowMade, status=201,
        ),
        _get(
            "/flows/{id}", flows.show, tell.FlowSheet,
            "Read how far the steps of a workflow are, and why they wait.", named=ask.One,
        ),
        _get(
            "/flows/{id}/graph", flows.graph, Picture,
            "Draw the steps of a workflow: boxes and arrows, each in its place.", named=ask.One,
        ),
        _get(
            "/flows/{id}/steps/{name}", flows.step, tell.FlowStep,
            "Read a step with its tasks and attempts.", named=ask.StepOf, query=ask.StepAsk,
        ),
        _post("/flows/{id}/cancel", flows.cancel, tell.Became, "Call a workflow off.", _USER),
        Route(
            method="POST", path="/flows/{id}/retry", scope=_USER, kind="write", act=flows.retry,
            says="Run a workflow again from its failed steps, or from others.", named=ask.One,
            body=ask.Again, answer=tell.FlowAgain,
        ),
        _get("/rules", rules.index, tell.Rules, "List the rules in force."),
        _post(
            "/rules/{name}/enable", rules.enable, tell.Switched, "Let a rule take events.", _ADMIN,
            named=ask.Named,
        ),
        _post(
            "/rules/{name}/disable", rules.disable, tell.Switched,
            "Keep a rule from taking events.", _ADMIN, named=ask.Named,
        ),
        _get(
            "/pilots", pilots.index, tell.Pilots, "List pilots, the newest first.",
            query=ask.PilotsAsk,
        ),
        _get(
            "/pilots/{id}", pilots.show, tell.PilotSheet, "Read all about a pilot.",
            named=ask.Pilot,
        ),
        _post(
            "/pilots/{id}/drain", pilots.drain, tell.Became,
            "Let a pilot finish what it has and take no more.", _ADMIN, named=ask.Pilot,
        ),
        _post(
            "/pilots/{id}/stop", pilots.stop, tell.Became, "Let a pilot leave now.", _ADMIN,
            named=ask.Pilot,
        ),
        _get("/sites", sites.index, tell.Sites, "List sites, and how they are."),
        _get(
            "/sites/{name}", sites.show, Seen, "Read how a site is.", named=ask.Named,
        ),
        Route(
            method="POST", path="/sites/{name}/drain", scope=_ADMIN, kind="write",
            act=sites.drain, says="Give a site nothing more.", named=ask.Named,
            query=ask.DrainAsk, answer=tell.Became,
        ),
        _post(
            "/sites/{name}/resume", sites.resume, tell.Became, "Give a site work again.", _ADMIN,
            named=ask.Named,
        ),
        _get(
            "/pools", pools.index, tell.Pools, "List pools, what each does and why.", scope=_POOL
        ),
        _get(
            "/pools/samples", pools.samples, tell.PoolSamples, "Tell how pools were.",
            query=ask.PoolSamplesAsk,
        ),
        _get(
            "/pools/{name}", outside.show, Look, "See one pool.", named=ask.Named, scope=_POOL
        ),
        Route(
            method="PUT", path="/pools/{name}/demand", scope=_POOL, kind="write",
            act=outside.demand, says="Ask a pool that is steered from outside for cores.",
            named=ask.Named, body=ask.Demand, answer=Taken,
        ),
        _post(
            "/pools/{name}/pause", pools.pause, tell.Became, "Leave a pool as it is.", _ADMIN,
            named=ask.Named,
        ),
        _post(
            "/pools/{name}/resume", pools.resume, tell.Became, "Let a pool go on.", _ADMIN,
            named=ask.Named,
        ),
        _post(
            "/pools/{name}/allow", pools.allow, tell.Became,
            "Allow what a pool asks for, up to its maximum.", _ADMIN, named=ask.Named,
        ),
        _post(
            "/pools/{name}/reset", pools.reset, tell.Became, "Go back to what its file says.",
            _ADMIN, named=ask.Named,
        ),
        _get(
            "/samples", pilots.samples, tell.Samples, "Tell how full sites were.",
            query=ask.SamplesAsk,
        ),
        _get("/shares", whole.shares, tell.Shares, "Tell who has used how much."),
        _get("/tokens", tokens.index, tell.Tokens, "List all tokens.", scope=_ADMIN),
        Route(
            method="POST", path="/tokens", scope=_ADMIN, kind="write", act=tokens.make,
            says="Make a token; its text is told this once.", body=ask.NewToken,
            answer=tell.Token, status=201,
        ),
        Route(
            method="DELETE", path="/tokens/{id}", scope=_ADMIN, kind="write", act=tokens.revoke,
            says="Let a token count no longer.", named=ask.One, answer=tell.Became,
        ),
        Route(
            method="GET", path="/stream", scope=_READ, kind="live", act=_nowhere,
            says="Follow what changes, as server-sent events: jobs, flows, pilots, alarms.",
            answer=None, media="text/event-stream",
        ),
    )  # fmt: skip


def _get(
    path: str, act: Any, answer: Any, says: str, *, named: type = Nothing,  # noqa: ANN401
    query: type = Nothing, scope: Scope = _READ,
) -> Route:  # fmt: skip
    return Route(
        method="GET", path=path, scope=scope, kind="read", act=act, says=says, answer=answer,
        named=named, query=query,
    )  # fmt: skip


def _post(
    path: str, act: Any, answer: Any, says: str, scope: Scope, *, named: type = ask.One,  # noqa: ANN401
) -> Route:  # fmt: skip
    return Route(
        method="POST", path=path, scope=scope, kind="write", act=act, says=says, answer=answer,
        named=named,
    )  # fmt: skip


def _nowhere(*_: Any) -> None:  # noqa: ANN401 - of any kind: nobody calls it
    raise AssertionError("the application answers this itself")
