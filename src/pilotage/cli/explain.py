"""`pilotage explain`: why jobs do not run, or how they ended."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.base import text
from pilotage.cli import formatting, job_selector
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.verbs import Selectors
from pilotage.match import explain as explaining
from pilotage.match.facts import Explanation
from pilotage.status.explain import JobExplainer

_MOST = 20


def explain(selector: Selectors, /, *, at: Common = HERE) -> Answer:
    """Explain why jobs do not run, or how they ended, and what to do."""
    data: list[dict[str, Any]] = []
    shown: list[Shown] = []
    with at.open() as project:
        running = project.running()
        now = project.clock.now()
        witness = JobExplainer(
            project.db, project.settings, now=now, running=running, root=project.root
        )
        numbers = job_selector.numbers(project, selector)
        for number in numbers[:_MOST] if at.mode == "table" else numbers:
            known = witness.facts(number)
            found = explaining.explain(known)
            data.append({"id": number, "state": known.job.state, **msgspec.to_builtins(found)})
            shown += [*([""] if shown else []), *_sheet(found, known.job.name, known.job.state)]
    more = len(numbers) - _MOST
    notes = (
        (f"… and {formatting.count(more, 'job')} more",) if more > 0 and at.mode == "table" else ()
    )
    return Answer({"jobs": data}, tuple(shown), tuple(numbers), notes)


def _sheet(found: Explanation, name: str, state: str) -> list[Shown]:
    style = formatting.STYLES.get(state, "")
    parts: list[Shown] = [
        line(Styled(found.headline, style or "bold"), Styled(f"  ({text.show(name)})", "dim"))
    ]
    for reason in found.reasons:
        detail = f": {reason.detail}" if reason.detail else ""
        # A site or a payload may have said anything, also to the terminal.
        parts += [text.show(one) for one in f"  • {reason.text}{detail}".split("\n")]
    if found.suggestion:
        parts.append(line("  ", Styled("→", "cyan"), f" {found.suggestion}"))
    return parts
