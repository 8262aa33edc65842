"""Tokens: make, list and revoke them."""

from __future__ import annotations

from pilotage.base import errors
from pilotage.hub.api import answers, queries
from pilotage.hub.api.call import ApiCall
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from pilotage.store import Db

_MOST = 10_000


def index(db: Db, call: ApiCall) -> answers.Tokens:
    """List all tokens."""
    del call
    return answers.Tokens([answers.TokenRow(*one) for one in db.rows("token_list", most=_MOST)])


def make(db: Db, call: ApiCall) -> answers.NewTokenView:
    """Make a token; its text is told this once."""
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
    """Let a token count no longer."""
    tokens.revoke(db, call.path.id, call.now)
    return answers.Became("revoked")
