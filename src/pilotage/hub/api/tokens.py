"""Tokens: make, list and revoke them."""

from __future__ import annotations

from pilotage.base import errors
from pilotage.hub.api import ask, tell
from pilotage.hub.api.call import Call
from pilotage.project import tokens
from pilotage.project.tokens import Scope
from pilotage.store import Db

_MOST = 10_000


def index(db: Db, call: Call) -> tell.Tokens:
    """List all tokens."""
    del call
    return tell.Tokens([tell.TokenRow(*one) for one in db.rows("token_list", most=_MOST)])


def make(db: Db, call: Call) -> tell.Token:
    """Make a token; its text is told this once."""
    wanted: ask.NewToken = call.body
    if wanted.scope in {Scope.ADMIN, Scope.USER} and not wanted.owner:
        raise errors.UsageError(
            f"a token for {wanted.scope} needs an owner", hint="as `user` or `group/user`"
        )
    secret, number = tokens.mint(
        db, wanted.scope, wanted.owner, now=call.now, lifetime=wanted.lifetime, pool=wanted.pool,
        site=wanted.site, label=wanted.label, uses=wanted.uses,
    )  # fmt: skip
    return tell.Token(number, secret)


def revoke(db: Db, call: Call) -> tell.Became:
    """Let a token count no longer."""
    tokens.revoke(db, call.path.id, call.now)
    return tell.Became("revoked")
