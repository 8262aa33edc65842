"""`pilotage job`: list, show and forget jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from pilotage.base import errors, units
from pilotage.cli import formatting, job_details, job_selector, job_table
from pilotage.cli.answer import Answer, Shown
from pilotage.cli.common import HERE, Common
from pilotage.hub.project import Project
from pilotage.job.model import Job, State
from pilotage.job.records import Selection

if TYPE_CHECKING:
    from pilotage.match.sites import SiteView

app = App(name="job", help="List, show and remove jobs.", group_commands="Commands")
for _place, _help in (
    ("submit:submit", "Queue a command, a script or a job file."),
    ("verbs:cancel", "Cancel jobs."),
    ("verbs:hold", "Hold jobs: they do not start until released."),
    ("verbs:release", "Release held jobs."),
    ("verbs:retry", "Retry failed jobs."),
):
    app.command(f"pilotage.cli.{_place}", help=_help)
_MOST = 50


@app.command
def ls(
    *,
    state: Annotated[
        tuple[State, ...], Parameter(help="Only jobs in this state; repeatable.")
    ] = (),
    name: Annotated[str, Parameter(help="Only jobs with this name; a glob.")] = "*",
    tag: Annotated[str, Parameter(help="Only jobs with this tag.")] = "",
    since: Annotated[str, Parameter(help="Only jobs made in the last `1h`, `2d`, …")] = "",
    most: Annotated[int, Parameter(help="Show only the newest N; 0 means all.")] = _MOST,
    at: Common = HERE,
) -> Answer:
    """List jobs, the newest last."""
    with at.open() as project:
        now = project.clock.now()
        start = now - units.seconds(since) if since else 0.0
        wanted = Selection(
            states=state, name=name, tag=tag, since=start, most=most + 1 if most else 2**62
        )
        found = project.jobs(wanted)
        where = job_table.where(project.db, found) if at.mode != "quiet" else {}
        reasons: dict[int, str] = {}
        if at.mode == "table" and any(one.state is State.QUEUED for one in found):
            from pilotage.status import explain as facts
            from pilotage.status import offers

            running = project.running()
            scene = offers.read(project.db, project.settings, now=now, running=running)
            reasons = facts.reasons(found, scene, now, _sites(project, found, now))
    more = bool(most) and len(found) > most
    found = found[-most:] if more else found
    return Answer(
        data={"jobs": [job_table.job(one, where.get(one.id)) for one in found], "more": more},
        shown=(job_table.jobs(found, now, where, reasons),) if found else (),
        ids=tuple(one.id for one in found),
        notes=_notes(found, more=more),
    )


def _sites(project: Project, found: list[Job], now: float) -> SiteView | None:
    """Read the state of sites that queued jobs name; None if there are none."""
    named = {one.spec.site for one in found if one.state is State.QUEUED and one.spec.site}
    if not named:
        return None
    from pilotage.status import sites

    return sites.standing(
        project.db, project.root, project.settings, now, named, running=project.running()
    )


def _notes(found: list[Job], *, more: bool) -> tuple[str, ...]:
    if not found:
        return ("no jobs",)
    return (f"these are the newest {len(found)}; `--most 0` shows all",) if more else ()


@app.command
def show(
    selector: Annotated[tuple[str, ...], Parameter(help=job_selector.HELP)], /, *, at: Common = HERE
) -> Answer:
    """Show jobs in full: definition, attempts and files."""
    from pilotage.agent.records import owner_of

    with at.open() as project:
        now = project.clock.now()
        data, shown = [], list[Shown]()
        for number in job_selector.numbers(project, selector):
            one = project.job(number)
            attempts = project.attempts(number)
            place = job_table.where(project.db, [one]).get(number)
            facts = job_table.job(one, place) | job_table.definition(one)
            sender = owner_of(project.db, number)
            facts |= {} if sender is None else {"user": sender}
            data.append(facts | {"attempts": [job_table.attempt(each) for each in attempts]})
            shown += [*([""] if shown else []), *job_details.job(one, attempts, now, sender, place)]
    return Answer({"jobs": data}, tuple(shown), tuple(each["id"] for each in data))


@app.command
def purge(
    *,
    older: Annotated[str, Parameter(help="Jobs that ended longer ago than this, such as 30d.")],
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask.")] = False,
    at: Common = HERE,
) -> Answer:
    """Remove jobs that ended long ago, with their directories."""
    with at.open() as project:
        before = project.clock.now() - units.seconds(older)
        count = len(project.db.rows("job_purgeable", before=before, most=2**62))
        words = f"{formatting.count(count, 'job')} that ended before {formatting.clock(before)}"
        if count and not yes and not ask(f"forget {words}, with their logs?"):
            return Answer({"purged": 0}, notes=("nothing was forgotten",))
        _forget(project, before)
    return Answer({"purged": count}, (f"forgot {words}",))


def _forget(project: Project, before: float) -> None:
    from pilotage.job import purge as purging

    folders: list[str] | None = []
    while folders is not None:
        purging.remove(folders)
        with project.db.transaction() as db:
            folders = purging.forget(db, before)


def ask(question: str) -> bool:
    """Ask a person; where there is none, refuse."""
    if not sys.stdin.isatty():
        message = "this removes data, and there is no terminal to ask"
        raise errors.UsageError(message, hint="add `--yes` if it is meant")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
