"""Tokens with a scope; the store keeps only their digests."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from pilotage.base import durable, errors, text
from pilotage.base.owner import me
from pilotage.bus.fields import Word
from pilotage.store import Db

#: What another process revokes is refused here after this many seconds.
FRESH = 2.0
#: The admin token of the machine that the hub runs on.
FILE = "admin-token"
_TEN_YEARS_S = 10 * 365 * 86400.0
#: For how long the key of an agent counts after it was last renewed.
AGENT_S = 30 * 86400.0
_MOST_CACHED = 10_000
_FORM = re.compile(r"pil_[aursepg]_[A-Za-z0-9_-]{43}")
_HINT = "`pilotage token new` makes one"
#: What tokens of factories began with.
_FACTORY = "pil_f_"
_AGENTS = "a factory is an agent now: `pilotage token new agent --site NAME` makes its token"


class TokenScope(StrEnum):
    """What a token permits."""

    #: Everything.
    ADMIN = "admin"
    #: Reads everything, submits, and changes the course of its own jobs.
    USER = "user"
    #: Reads.
    READ = "read"
    #: Enrols the pilots of one site.
    SITE = "site"
    #: Enrols pilots, so often as it says.
    ENROL = "enrol"
    #: Sees pools, and steers those that are steered from outside; one of them, if it names one.
    POOL = "pool"
    #: Speaks for one site, as its agent; it is used once, and a key of the agent's replaces it.
    AGENT = "agent"


#: What tokens of a scope begin with, where it is not the first letter.
_LETTERS = {TokenScope.AGENT: "g"}
#: Which scopes may do what one asks for.
_COVERS: dict[TokenScope, frozenset[TokenScope]] = {
    TokenScope.ADMIN: frozenset({TokenScope.ADMIN}),
    TokenScope.USER: frozenset({TokenScope.ADMIN, TokenScope.USER}),
    TokenScope.READ: frozenset({TokenScope.ADMIN, TokenScope.USER, TokenScope.READ}),
    TokenScope.SITE: frozenset({TokenScope.SITE}),
    TokenScope.ENROL: frozenset({TokenScope.ENROL, TokenScope.SITE}),
    # To see pools; controlling one needs its name in the token.
    TokenScope.POOL: frozenset(
        {TokenScope.ADMIN, TokenScope.USER, TokenScope.READ, TokenScope.POOL}
    ),
    TokenScope.AGENT: frozenset({TokenScope.AGENT}),
}


class Grant(msgspec.Struct, frozen=True):
    """The permissions of a token."""

    #: The token's number.
    id: int
    scope: TokenScope
    #: Whose jobs it speaks for, as `user` or `group/user`.
    owner: str
    #: The pool and site of pilots that enrol with it; the pool that it steers.
    pool: str = ""
    site: str = ""
    #: When it ends.
    expires: float = 0.0
    #: The requested pilot, which enrols with this token.
    pilot: int | None = None
    #: Whether uses of it are not counted, as those of the key of an enrolled agent.
    lasting: bool = True

    def covers(self, wanted: TokenScope) -> bool:
        """Return whether it is enough for what needs a scope."""
        return self.scope in _COVERS[wanted]

    def steers(self, pool: str) -> bool:
        """Return whether it may ask a pool for cores."""
        mine = self.scope is TokenScope.POOL and self.pool in {"", pool}
        return self.scope is TokenScope.ADMIN or mine

    def acts_for(self, owner: str) -> bool:
        """Return whether it may change the jobs of an owner."""
        return self.scope is TokenScope.ADMIN or (
            self.scope is TokenScope.USER and self.owner == owner
        )


def mint(  # noqa: PLR0913 - the facts of a token
    db: Db, scope: TokenScope, owner: str, *, now: float, lifetime: float, pool: str = "",
    site: str = "", label: str = "", uses: int | None = None, pilot: int | None = None,
) -> tuple[str, int]:  # fmt: skip
    """Make a token; its text is shown once, and its number identifies it from then on."""
    if scope is TokenScope.AGENT:
        _check_site(site)
        uses = 1
    secret = f"pil_{_LETTERS.get(scope, scope[0])}_{secrets.token_urlsafe(32)}"
    number = db.value(
        "token_add", digest=digest(secret), scope=scope, owner=owner, pool=pool, site=site,
        label=label, now=now, expires=now + lifetime, uses=uses, pilot=pilot,
    )  # fmt: skip
    return secret, int(number)


def _check_site(site: str) -> None:
    """Refuse a token for an agent that names no site, or one that no message could name."""
    try:
        msgspec.convert(site, Word)
    except msgspec.ValidationError:
        message = f"an agent serves one site, and {text.show(site) or 'nothing'} names none"
        raise errors.UsageError(message, hint="`--site NAME`") from None


def digest(secret: str) -> str:
    """Write a secret as the store knows it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def look(db: Db, secret: str, now: float) -> Grant:
    """Return the grant of a secret; it is looked up by digest, so timing reveals nothing."""
    row = db.row("token_get", digest=digest(secret)) if _FORM.fullmatch(secret) else None
    if row is None or row[7] is not None:
        hint = _AGENTS if secret.startswith(_FACTORY) else _HINT
        raise errors.Denied("the token is wrong or revoked", hint=hint)
    if row[5] <= now:
        raise errors.Denied("the token has expired", hint=_HINT)
    if row[6] is not None and row[6] < 1:
        raise errors.Denied("the token is used up", hint=_HINT)
    return Grant(row[0], TokenScope(row[1]), row[2], row[3], row[4], row[5], row[8], row[6] is None)


def consume(db: Db, secret: str, scope: TokenScope, now: float) -> Grant:
    """Use a token once, in the transaction of what it is used for."""
    grant = look(db, secret, now)
    if not grant.covers(scope):
        raise errors.Denied(f"a token for {grant.scope} cannot {scope}", hint=_HINT)
    db.run("token_use", id=grant.id)
    return grant


def admit(db: Db, secret: str, key: str, site: str, now: float) -> Grant:
    """Enrol the agent of a site: from now on its own key counts instead of its secret.

    The secret is a token that was made for this, or the key before; a token ends what earlier
    agents of the site have.
    """
    grant = look(db, secret, now)
    if not grant.covers(TokenScope.AGENT):
        hint = "`pilotage token new agent --site NAME` makes one"
        raise errors.Denied(f"a token for {grant.scope} is not for an agent", hint=hint)
    if grant.site != site:
        message = f"this token is for the site `{grant.site}`, and the agent serves `{site}`"
        raise errors.Denied(message, hint="`site` in agent.toml names it")
    if not _FORM.fullmatch(key):
        raise errors.UsageError("the key of an agent has another form")
    db.run("agent_others_revoke", site=site, id=grant.id, now=now)
    db.run("agent_renew", id=grant.id, digest=digest(key), expires=now + AGENT_S)
    return grant


def revoke(db: Db, number: int, now: float) -> None:
    """Revoke a token."""
    if db.value("token_revoke", id=number, now=now) is None:
        raise errors.NotFound(f"there is no token {number}", hint="`pilotage token ls` lists them")


@dataclass(eq=False, repr=False)
class TokenGate:
    """Looks up tokens, with a short cache; may be used by any thread."""

    #: A connection of its own.
    _db: Db
    _now: Callable[[], float]
    _tick: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _known: dict[str, tuple[float, Grant]] = field(default_factory=dict, init=False)

    def check(self, secret: str, wanted: TokenScope) -> Grant:
        """Return the grant of a secret, or refuse it."""
        grant = self._grant(secret)
        if not grant.covers(wanted):
            raise errors.Denied(
                f"a token for {grant.scope} is not enough", hint=f"this needs one for {wanted}"
            )
        return grant

    def forget(self) -> None:
        """Clear the cache: a token was revoked."""
        with self._lock:
            self._known.clear()

    def _grant(self, secret: str) -> Grant:
        key = digest(secret)
        with self._lock:
            until, grant = self._known.get(key, (0.0, None))
            if grant is not None and self._tick() < until and self._now() < grant.expires:
                return grant
            self._known.pop(key, None)
            grant = look(self._db, secret, self._now())
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            self._known[key] = (self._tick() + FRESH, grant)
            return grant


def at_home(db: Db, state: Path, now: float) -> str:
    """Return the admin token of this machine, and make it if there is none that counts.

    The caller has begun a transaction.
    """
    file = state / FILE
    try:
        secret = file.read_text(encoding="utf-8").strip()
        if look(db, secret, now).scope is TokenScope.ADMIN:
            return secret
    except (OSError, UnicodeDecodeError, errors.Denied):
        pass  # there is none yet, or it was revoked
    secret, _ = mint(
        db, TokenScope.ADMIN, me(), now=now, lifetime=_TEN_YEARS_S, label="made by the hub"
    )
    durable.write(file, f"{secret}\n", mode=0o600)
    return secret


def read(file: Path) -> str:
    """Read a token from a file of the user's."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = f"cannot read the token file {file}: {error.strerror}"
        raise errors.ConfigError(message, hint="make it, or leave `token_file` out") from error
    if not token:
        message = f"the token file {file} is empty"
        raise errors.ConfigError(message, hint="put one line of secret text into it")
    return token


def keep(file: Path) -> str:
    """Read our own token, and make it if there is none yet."""
    if not file.exists():
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as fresh:
            fresh.write(secrets.token_urlsafe(32) + "\n")
    return read(file)
