"""Tokens and rules: list them, make and revoke tokens, enable and disable rules."""

from __future__ import annotations

from pilotage.base import errors
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from pilotage.rule import graph, records
from pilotage.store import Db

_MOST = 10_000


def index(db: Db, call: ApiCall) -> answers.Tokens:
    """List all tokens."""
    del call
    return answers.Tokens([answers.TokenRow(*one) for one in db.rows("token_list", most=_MOST)])


def make(db: Db, call: ApiCall) -> answers.NewTokenView:
    """Make a token; its text is shown only once."""
    wanted: queries.NewToken = call.body
    if wanted.scope in {TokenScope.ADMIN, TokenScope.USER} and not wanted.owner:
        raise errors.UsageError(
            f"a token for {wanted.scope} needs an owner", hint="as `user` or `group/user`"
        )
    secret, number = tokens.mint(
        db, wanted.scope, wanted.owner, now=call.now, lifetime=wanted.lifetime, pool=wanted.pool,
        site=wanted.site, label=wanted.label, uses=wanted.uses,
    )  # fmt: skip
    return answers.NewTokenView(number, secret)


def revoke(db: Db, call: ApiCall) -> answers.Became:
    """Revoke a token."""
    tokens.revoke(db, call.path.id, call.now)
    return answers.Became("revoked")


#: The last job of a rule is searched among this many jobs.
_NEWEST = 50_000


def list_rules(db: Db, call: ApiCall) -> answers.RuleList:
    """List the rules in force."""
    known = records.known(db)
    root = str(call.context.project.root)
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


def enable_rule(db: Db, call: ApiCall) -> answers.Switched:
    """Enable a rule."""
    records.enable(db, [call.path.name], on=True)
    return answers.Switched(enabled=True)


def disable_rule(db: Db, call: ApiCall) -> answers.Switched:
    """Disable a rule."""
    records.enable(db, [call.path.name], on=False)
    return answers.Switched(enabled=False)
