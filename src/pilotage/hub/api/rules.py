"""Rules in force, and whether they take events."""

from __future__ import annotations

from pilotage.hub.api import answers
from pilotage.hub.api.call import ApiCall
from pilotage.rule import graph, rulebook
from pilotage.store import Db

#: When a rule last made a job is looked for among so many jobs.
_NEWEST = 50_000


def index(db: Db, call: ApiCall) -> answers.RuleList:
    """List the rules in force."""
    known = rulebook.known(db)
    root = str(call.hands.project.root)
    nodes = graph.graph([one.rule for one in known.values()], root).nodes
    triggers = {node.id: node.sub for node in nodes}
    last = dict(db.rows("api_rule_last", after=int(db.value("job_last")) - _NEWEST))
    return answers.RuleList([
        answers.RuleRow(
            name, one.rule.book, one.rule.line, triggers.get(name, ""), one.enabled, one.hits,
            last.get(name),
        )
        for name, one in known.items()
    ])  # fmt: skip


def enable(db: Db, call: ApiCall) -> answers.Switched:
    """Let a rule take events."""
    rulebook.enable(db, [call.path.name], on=True)
    return answers.Switched(enabled=True)


def disable(db: Db, call: ApiCall) -> answers.Switched:
    """Keep a rule from taking events."""
    rulebook.enable(db, [call.path.name], on=False)
    return answers.Switched(enabled=False)
