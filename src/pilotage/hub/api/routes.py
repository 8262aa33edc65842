"""The table of all routes of the API."""

from __future__ import annotations

from typing import Any

from pilotage.flow.picture import FlowPicture
from pilotage.hub.api import admin, answers, flows, jobs, live, pilots, pools, queries, sites
from pilotage.hub.api.call import Nothing, Route
from pilotage.hub.api.overview import Overviews
from pilotage.pool.state import Taken
from pilotage.pool.view import PoolView
from pilotage.project.tokens import TokenScope
from pilotage.status.sites import SiteStatus

PREFIX = "/api/v1"
_LARGE = 16 * 2**20
_READ, _USER, _ADMIN, _POOL = TokenScope.READ, TokenScope.USER, TokenScope.ADMIN, TokenScope.POOL


def table(whole: Overviews) -> tuple[Route, ...]:
    """List all routes; `whole` has the answers that some of them share."""
    return (
        _get("/overview", whole.show, answers.Overview, "Summarise jobs, pilots and alarms."),
        _get(
            "/jobs", jobs.index, answers.Jobs, "List jobs, the newest first.",
            query=queries.JobsAsk,
        ),
        Route(
            method="POST", path="/jobs", scope=_USER, kind="write", act=jobs.submit,
            says="Queue jobs, all or none; they are on disk when this is answered.",
            body=queries.Submission, most=_LARGE, answer=answers.Numbers, status=201,
        ),
        _get("/jobs/{id}", jobs.show, answers.JobSheet, "Read all about a job.", named=queries.One),
        _get(
            "/jobs/{id}/explain", jobs.explain, answers.WhyView, "Explain the state of a job.",
            named=queries.One,
        ),
        _get(
            "/jobs/{id}/story", jobs.told, answers.Told, "Read the history of a job.",
            named=queries.One,
        ),
        _get(
            "/jobs/{id}/logs", jobs.log, answers.Written, "Read a part of the log of a job.",
            named=queries.One, query=queries.LogAsk,
        ),
        _post("/jobs/{id}/cancel", jobs.cancel, answers.Became, "Cancel a job.", _USER),
        _post("/jobs/{id}/hold", jobs.hold, answers.Became, "Hold a job.", _USER),
        _post("/jobs/{id}/release", jobs.release, answers.Became, "Release a held job.", _USER),
        _post("/jobs/{id}/retry", jobs.retry, answers.Became, "Retry a job.", _USER),
        Route(
            method="GET", path="/ends", scope=_READ, kind="live", act=live.wait,
            says="Read the ends of jobs, and wait for one.", query=queries.EndsAsk,
            answer=answers.EndPage,
        ),
        _get(
            "/flows", flows.index, answers.FlowPage, "List workflows, the newest first.",
            query=queries.FlowsAsk,
        ),
        Route(
            method="POST", path="/flows", scope=_USER, kind="write", act=flows.submit,
            says="Start a workflow; it is on disk when this is answered.", body=queries.NewFlow,
            most=_LARGE, answer=answers.FlowMade, status=201,
        ),
        _get(
            "/flows/{id}", flows.show, answers.FlowSheet,
            "Read the progress of a workflow, and why steps wait.", named=queries.One,
        ),
        _get(
            "/flows/{id}/graph", flows.graph, FlowPicture,
            "Draw the steps of a workflow: boxes and arrows, each in its place.", named=queries.One,
        ),
        _get(
            "/flows/{id}/steps/{name}", flows.step, answers.FlowStep,
            "Read a step with its tasks and attempts.", named=queries.StepOf, query=queries.StepAsk,
        ),
        _post("/flows/{id}/cancel", flows.cancel, answers.Became, "Cancel a workflow.", _USER),
        Route(
            method="POST", path="/flows/{id}/retry", scope=_USER, kind="write", act=flows.retry,
            says="Run a workflow again from its failed steps, or from others.", named=queries.One,
            body=queries.Again, answer=answers.FlowAgain,
        ),
        _get("/rules", admin.list_rules, answers.RuleList, "List the rules in force."),
        _post(
            "/rules/{name}/enable", admin.enable_rule, answers.Switched, "Enable a rule.",
            _ADMIN, named=queries.Named,
        ),
        _post(
            "/rules/{name}/disable", admin.disable_rule, answers.Switched,
            "Disable a rule.", _ADMIN, named=queries.Named,
        ),
        _get(
            "/pilots", pilots.index, answers.Pilots, "List pilots, the newest first.",
            query=queries.PilotsAsk,
        ),
        _get(
            "/pilots/{id}", pilots.show, answers.PilotSheet, "Read all about a pilot.",
            named=queries.PilotNumber,
        ),
        _post(
            "/pilots/{id}/drain", pilots.drain, answers.Became,
            "Drain a pilot: it takes no more jobs.", _ADMIN, named=queries.PilotNumber,
        ),
        _post(
            "/pilots/{id}/stop", pilots.stop, answers.Became, "Stop a pilot now.", _ADMIN,
            named=queries.PilotNumber,
        ),
        _get("/sites", sites.index, answers.SiteList, "List sites and their state."),
        _get(
            "/sites/{name}", sites.show, SiteStatus, "Read the state of a site.",
            named=queries.Named,
        ),
        Route(
            method="POST", path="/sites/{name}/drain", scope=_ADMIN, kind="write",
            act=sites.drain, says="Drain a site: it gets no more jobs.", named=queries.Named,
            query=queries.DrainAsk, answer=answers.Became,
        ),
        _post(
            "/sites/{name}/resume", sites.resume, answers.Became, "Resume a site.", _ADMIN,
            named=queries.Named,
        ),
        _get(
            "/pools", pools.index, answers.Pools, "List pools, what each does and why.", scope=_POOL
        ),
        _get(
            "/pools/samples", pools.samples, answers.PoolSamples, "Read samples of pools.",
            query=queries.PoolSamplesAsk,
        ),
        _get(
            "/pools/{name}", pools.show, PoolView, "Read one pool.", named=queries.Named,
            scope=_POOL,
        ),
        Route(
            method="PUT", path="/pools/{name}/demand", scope=_POOL, kind="write",
            act=pools.demand, says="Set the demand of a pool that is controlled from outside.",
            named=queries.Named, body=queries.Demand, answer=Taken,
        ),
        _post(
            "/pools/{name}/pause", pools.pause, answers.Became, "Pause a pool.", _ADMIN,
            named=queries.Named,
        ),
        _post(
            "/pools/{name}/resume", pools.resume, answers.Became, "Resume a pool.", _ADMIN,
            named=queries.Named,
        ),
        _post(
            "/pools/{name}/allow", pools.allow, answers.Became,
            "Allow what a pool asks for, up to its maximum.", _ADMIN, named=queries.Named,
        ),
        _post(
            "/pools/{name}/reset", pools.reset, answers.Became, "Reset a pool to its file.",
            _ADMIN, named=queries.Named,
        ),
        _get(
            "/samples", pilots.samples, answers.Samples, "Read the use of sites over time.",
            query=queries.SamplesAsk,
        ),
        _get("/shares", whole.shares, answers.Shares, "Read the usage and shares of owners."),
        _get("/tokens", admin.index, answers.Tokens, "List all tokens.", scope=_ADMIN),
        Route(
            method="POST", path="/tokens", scope=_ADMIN, kind="write", act=admin.make,
            says="Make a token; its text is shown only once.", body=queries.NewToken,
            answer=answers.NewTokenView, status=201,
        ),
        Route(
            method="DELETE", path="/tokens/{id}", scope=_ADMIN, kind="write", act=admin.revoke,
            says="Revoke a token.", named=queries.One, answer=answers.Became,
        ),
        Route(
            method="GET", path="/stream", scope=_READ, kind="live", act=_nowhere,
            says="Follow changes, as server-sent events: jobs, flows, pilots, alarms.",
            answer=None, media="text/event-stream",
        ),
    )  # fmt: skip


def _get(
    path: str, act: Any, answer: Any, says: str, *, named: type = Nothing,  # noqa: ANN401
    query: type = Nothing, scope: TokenScope = _READ,
) -> Route:  # fmt: skip
    return Route(
        method="GET", path=path, scope=scope, kind="read", act=act, says=says, answer=answer,
        named=named, query=query,
    )  # fmt: skip


def _post(
    path: str, act: Any, answer: Any, says: str, scope: TokenScope, *, named: type = queries.One,  # noqa: ANN401
) -> Route:  # fmt: skip
    return Route(
        method="POST", path=path, scope=scope, kind="write", act=act, says=says, answer=answer,
        named=named,
    )  # fmt: skip


def _nowhere(*_: Any) -> None:  # noqa: ANN401 - of any kind: never called
    raise AssertionError("the application answers this itself")
