"""`pilotage flow`: run, monitor and control workflows."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from pilotage.base import errors, text
from pilotage.cli import flow_tables, formatting
from pilotage.cli.answer import Answer, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.flow.view import FlowSheet
    from pilotage.hub.project import Project


app = App(
    name="flow", help="Run and monitor workflows across sites.",
    group_commands="Commands",
)  # fmt: skip

for _name, _place, _help in (
    ("submit", "flow_submit:submit", "Start a workflow from a TOML or JSON file."),
    ("graph", "flow_draw:graph", "Draw the steps of a workflow, or of a file."),
    ("retry", "flow_change:retry", "Run a workflow again from its failed steps, or from others."),
    ("cancel", "flow_change:cancel", "Cancel workflows."),
    ("report", "flow_draw:report", "Write a report of a workflow as one HTML file."),
    ("crate", "flow_draw:crate", "Write a workflow with its provenance as an RO-Crate."),
    ("refused", "flow:refused", "List workflows that came by the broker and were refused."),
):
    app.command(f"pilotage.cli.{_place}", name=_name, help=_help)

One = Annotated[str, Parameter(help="Number of a flow, `last`, or a name: its newest flow.")]
_States = Literal["running", "cancelling", "staging_out", "done", "failed", "cancelled"]
_BEGIN = "`pilotage flow submit FILE` starts one"
_LINES, _TASKS = 40, 50


@app.command
def ls(
    *,
    state: Annotated[
        tuple[_States, ...], Parameter(help="Only those in this state; repeatable.")
    ] = (),
    name: Annotated[str, Parameter(help="Only those whose name matches this glob.")] = "",
    tag: Annotated[str, Parameter(help="Only those with this tag.")] = "",
    within: Annotated[bool, Parameter(help="Include workflows that are steps of others.")] = False,
    limit: Annotated[int, Parameter(help="Show at most N, the newest first.")] = 50,
    at: Common = HERE,
) -> Answer:
    """List workflows, the newest first."""
    from pilotage.flow import view as look

    with at.open() as project:
        found = look.rows(
            project.db, states=state, name=name, tag=tag, within=within, most=max(1, limit) + 1
        )
        now = project.clock.now()
        notes = () if found or state or name or tag else (f"no flows yet: {_BEGIN}",)
    more = len(found) > limit
    found = found[: max(1, limit)]
    if more:
        notes = ("there are more: `--limit` shows them",)
    return Answer(
        {"flows": [flow_tables.data(one) for one in found]},
        (flow_tables.flows(found, now),) if found else (),
        tuple(one.id for one in found),
        notes,
    )


@app.command
def show(
    flow: One,
    step: Annotated[str, Parameter(help="Only this step, with its tasks and attempts.")] = "",
    /,
    *,
    story: Annotated[bool, Parameter(help="Show the history, too.")] = False,
    state: Annotated[str, Parameter(help="Of a step: only its tasks in this state.")] = "",
    limit: Annotated[int, Parameter(help="Show at most N tasks or lines of the story.")] = 0,
    at: Common = HERE,
) -> Answer:
    """Show how far each step of a workflow is, where, and why it waits."""
    from pilotage.flow import view

    with at.open() as project:
        found = seen(project, number(project, flow))
        now = project.clock.now()
        if step:
            return _step(project, found, step, state, limit or _TASKS, now, story=story)
        told = view.story(project.db, found.row.id, most=limit or _LINES) if story else []
    shown: list[Shown] = list(flow_tables.whole(found, now))
    if told:
        shown += ["", *flow_tables.story(told)]
    data = flow_tables.data(found.row) | {
        "params": found.flow.params,
        "steps": [flow_tables.data(one) for one in found.steps],
    }
    if story:
        data["story"] = [flow_tables.data(one) for one in reversed(told)]
    return Answer({"flow": data}, tuple(shown), (found.row.id,), hints(found))


def _step(
    project: Project,
    found: FlowSheet,
    name: str,
    state: str,
    limit: int,
    now: float,
    *,
    story: bool,
) -> Answer:
    from pilotage.flow import explain as flow_explain
    from pilotage.flow import explain as flow_view
    from pilotage.flow import view

    one = next((each for each in found.steps if each.name == name), None)
    if one is None:
        raise no_step(found, name)
    number = found.row.id
    tasks = view.tasks(project.db, number, name, state=state, most=limit)
    # What happened to each of many tasks is much, and of little use.
    told = view.story(project.db, number, name, most=_LINES) if story or not one.each else []
    silent = flow_view.silent(project.db, now, running=project.running())
    whys = {
        each.item: flow_explain.explain_task(each, silent, now)
        for each in found.open
        if each.step == name
    }
    shown = tuple(flow_tables.one_step(one, tasks, told, now, whys))
    data = flow_tables.data(one) | {
        "tasks": [
            flow_tables.data(each)
            | {
                "why": whys.get(each.item, each.reason),
                "attempts": [flow_tables.data(attempt) for attempt in each.attempts],
            }
            for each in tasks
        ],
        "story": [flow_tables.data(each) for each in reversed(told)],
    }
    more = one.total - len(tasks)
    notes = [f"… and {more} more tasks: `--limit` shows them"] if more > 0 and not state else []
    jobs = [each.job for task in tasks for each in task.attempts if each.way != "flow" and each.job]
    if jobs:
        notes.append(f"`pilotage logs {jobs[-1]}` prints what it wrote")
    return Answer({"flow": number, "step": data}, shown, (name,), tuple(notes))


@app.command
def explain(
    flow: One,
    step: Annotated[str, Parameter(help="Only this step.")] = "",
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Explain why steps of a workflow do not run, or how they ended, and what to do."""
    with at.open() as project:
        found = seen(project, number(project, flow))
    if step and step not in {one.name for one in found.steps}:
        raise no_step(found, step)
    steps = [
        one
        for one in found.steps
        if (one.name == step if step else one.why and one.state != "done")
    ]
    shown: list[Shown] = [
        line(
            Styled(f"flow {found.row.id} is {found.row.state.replace('_', ' ')}", "bold"),
            f": {found.row.reason}" if found.row.reason else "",
            Styled(f"  ({found.row.name})", "dim"),
        )
    ]
    shown += [
        line("  • ", Styled(one.name, "bold"), " ", flow_tables.state(one.state),
             f": {one.why}" if one.why else "")
        for one in steps
    ]  # fmt: skip
    suggestions = hints(found)
    shown += [line("  ", Styled("→", "cyan"), f" {one}") for one in suggestions]
    data = {
        "id": found.row.id, "state": found.row.state, "reason": found.row.reason,
        "steps": [{"name": one.name, "state": one.state, "why": one.why} for one in steps],
        "suggestions": list(suggestions),
    }  # fmt: skip
    return Answer({"flow": data}, tuple(shown), (found.row.id,))


def hints(found: FlowSheet) -> tuple[str, ...]:
    """Return what a person could do about a flow."""
    number = found.row.id
    failed = [one for one in found.steps if one.state == "failed"]
    notes: list[str] = []
    if failed:
        notes.append(f"`pilotage flow show {number} {failed[0].name}` shows how it failed")
    if found.row.state in ("failed", "cancelled"):
        notes.append(f"`pilotage flow retry {number}` retries from there; finished steps are kept")
    return tuple(notes)


def no_step(found: FlowSheet, name: str) -> errors.NotFound:
    """Return that a flow has no such step, and which one may be meant."""
    names = [one.name for one in found.steps]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(names[:20])}"
    return errors.NotFound(f"flow {found.row.id} has no step {name}", hint=hint)


def number(project: Project, flow: str) -> int:
    """Find the flow that is meant."""
    from pilotage.flow import view as look

    if flow.isascii() and flow.isdigit():
        return look.row(project.db, int(flow)).id
    found = look.last(project.db, "" if flow == "last" else flow)
    if not found:
        message = "there are no flows yet" if flow == "last" else f"there is no flow {flow}"
        hint = _BEGIN if flow == "last" else "`pilotage flow ls` lists all flows"
        raise errors.NotFound(message, hint=hint)
    return found


def numbers(project: Project, flows: Sequence[str]) -> list[int]:
    """Find the flows that are meant, each once."""
    return list(dict.fromkeys(number(project, one) for one in flows))


def seen(project: Project, flow: int) -> FlowSheet:
    """Read a flow, with why its steps wait."""
    from pilotage.flow import explain as flow_view

    now, running = project.clock.now(), project.running()
    return flow_view.sheet(
        project.db, flow, now, project.settings, project.root, running=running
    )  # fmt: skip


def idle(project: Project) -> tuple[str, ...]:
    """Return that nothing will happen, if so."""
    if project.running():
        return ()
    return ("nothing runs this project now; it is kept: start `pilotage up`",)


def counted(count: int) -> str:
    """Write `1 step`, `2 steps`."""
    return formatting.count(count, "step")


_HEADS = columns("WHEN USER KEY REASON")


def refused(
    *,
    limit: Annotated[int, Parameter(help="Show at most N, the newest first.")] = 50,
    at: Common = HERE,
) -> Answer:
    """List workflow messages that were refused, and why."""
    with at.open() as project:
        found = project.db.rows("flows_refusals", most=max(1, limit))
    told = Table(
        _HEADS,
        tuple(
            (
                formatting.clock(when),
                text.show(user),
                text.show(key),
                Styled(text.show(reason), "red"),
            )
            for when, user, key, reason in found
        ),
    )
    return Answer(
        {
            "refused": [
                {"time": formatting.stamp(when), "user": user, "key": key, "reason": reason}
                for when, user, key, reason in found
            ]
        },
        (told,) if found else (),
        tuple(one[2] for one in found),
        () if found else ("none was refused",),
    )
