"""`pilotage submit`: queue a command, a script or a job file."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from pilotage.base import errors
from pilotage.base.owner import me
from pilotage.cli import select, shape, spec
from pilotage.cli.answer import Answer, Shown, Style, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.spec import Wishes
from pilotage.hub.project import Project
from pilotage.job.model import JobSpec, NewJob
from pilotage.match import submission
from pilotage.match.prospect import Prospect


def submit(
    words: Annotated[
        tuple[str, ...],
        Parameter(
            name="CMD", required=True,
            help="A program with its arguments, or a .sh, .py, .ipynb or .json file alone.",
        ),
    ],
    /,
    *,
    wishes: Wishes = spec.NONE,
    after: Annotated[
        tuple[str, ...], Parameter(help="Start when these jobs are done; repeatable.")
    ] = (),
    tag: Annotated[str, Parameter(help="A label; `@LABEL` selects all jobs that have it.")] = "",
    wait_: Annotated[
        bool, Parameter(name="--wait", help="Wait for its end and print its output.")
    ] = False,
    propagate: Annotated[
        bool, Parameter(help="With --wait: exit with the job's own status.")
    ] = False,
    dry_run: Annotated[
        bool,
        Parameter(name=("--dry-run", "-n"), help="Only say what would be queued."),
    ] = False,
    at: Common = HERE,
) -> Answer:  # fmt: skip
    """Queue a command, a script or a job file; it is safe when this returns."""
    draft = spec.build(words, wishes)
    with at.open() as project:
        asked = submission.bound(draft.spec, str(project.root))
        said = _check(project, asked) if asked.site else []
        new = NewJob(
            asked,
            limit_key=submission.limit_key(asked),
            after=tuple(select.numbers(project, after)),
            tag=tag or draft.tag,
        )
        if dry_run:
            return _plan(project, new, (*draft.notes, *said))
        number = project.submit(new)
        running = project.running()
        notes = [*draft.notes, *(said or _warnings(project, new))]
    if not running:
        notes.append(f"nothing runs this project now; job {number} is kept: start `pilotage up`")
    if wait_ or propagate:
        from pilotage.cli import wait

        return wait.for_one(number, at, propagate=propagate, notes=notes)
    return Answer(
        {"id": number, "name": new.spec.name, "running": running},
        (line("job ", Styled(str(number), "bold"), f"  {new.spec.name}"),),
        (number,),
        tuple(notes),
    )


def _check(project: Project, asked: JobSpec) -> list[str]:
    """Refuse what the site that is named will never take; return why it does not take it now."""
    from pilotage.status import sites

    try:
        return sites.check(
            project.db, project.root, project.settings, [asked], project.clock.now(),
            running=project.running(),
        )  # fmt: skip
    except errors.BadRule as error:
        raise errors.UsageError(f"`--{error.at}`: {error.message}", hint=error.hint) from None


def _prospect(project: Project, new: NewJob, *, room: bool) -> Prospect:
    from pilotage.status import offers

    now, running = project.clock.now(), project.running()
    scene = offers.read(project.db, project.settings, now=now, running=running, room=room)
    return scene.offers.prospect(new.spec, new.owner or me())


def _warnings(project: Project, new: NewJob) -> list[str]:
    """Say what keeps a job from starting although there is room."""
    from pilotage.match import queued

    found = _prospect(project, new, room=False)
    if not found.ever and (pool := _hoped(project, new)):
        return [f"it waits for a pilot of pool {pool}"]
    if found.never:
        advice = queued.advice(found.why.changes)
        words = f"it can never start on what is offered now: {queued.brief(found)}"
        return [words, *([f"hint: {advice}"] if advice else [])]
    return [] if found.ever else [f"it cannot start now: {queued.brief(found)}"]


def _hoped(project: Project, new: NewJob) -> str:
    from pilotage.status import explain

    now = project.clock.now()
    return explain.hoped(project.db, project.root, new.spec, new.owner or me(), now)


def _plan(project: Project, new: NewJob, notes: tuple[str, ...]) -> Answer:
    from pilotage.cli import sheet
    from pilotage.match import queued

    found = _prospect(project, new, room=True)
    shown: list[Shown] = [line(Styled("would queue", "bold"), f"  {new.spec.name}")]
    rows = {
        "runs": sheet.runs(new.spec.recipe),
        "in": new.spec.cwd or "(a directory of its own)",
        "needs": sheet.needs(new.spec),
        "where": sheet.where(new.spec),
        "after": ", ".join(f"job {one}" for one in new.after),
        "outputs": ", ".join(new.spec.outputs.values()),
        "limit": new.limit_key.replace(":", ", ") + " at once" if new.limit_key else "",
    }
    shown += [sheet.pair(name, value) for name, value in rows.items() if value]
    words = f"it fits now on {found.now} of {shape.count(found.why.offers, 'offer')}"
    advice = queued.advice(found.why.changes) if found.never else ""
    style: Style = "green" if found.now else "red" if found.never else "yellow"
    text = words if found.now else queued.brief(found)
    shown.append(line(Styled(f"{'match':<10}  ", "dim"), Styled(text, style)))
    if advice:
        shown.append(sheet.pair("instead", advice))
    data = {"job": msgspec.to_builtins(new), "match": msgspec.to_builtins(found)}
    return Answer(
        data, tuple(shown), (), notes, status=errors.Denied.exit_status if found.never else 0
    )
