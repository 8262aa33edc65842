"""`pilotage token`: create, list and revoke tokens."""

from __future__ import annotations

import getpass
from typing import Annotated, Any

from cyclopts import App, Parameter

from pilotage.base import errors, units
from pilotage.batch import files
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Cell, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope

app = App(name="token", help="Make, list and revoke tokens.", group_commands="Commands")
_HEADS = columns("ID> SCOPE OWNER SITE STATE EXPIRES LABEL")
_MOST = 10_000
#: Scopes of tokens that speak for a person.
_PEOPLE = (TokenScope.ADMIN, TokenScope.USER)


@app.command
def new(
    scope: Annotated[
        TokenScope, Parameter(help="One of admin, user, read, pool, agent, site and enrol.")
    ],
    /,
    *,
    owner: Annotated[
        str, Parameter(help="Owner of its jobs, USER or GROUP/USER; default: you.")
    ] = "",
    lifetime: Annotated[
        str, Parameter(help="Time until it expires, such as 2d; default: 30d.")
    ] = "30d",
    uses: Annotated[
        int | None, Parameter(help="How often it may be used; default: without limit.")
    ] = None,
    pool: Annotated[
        str, Parameter(help="The pool that it controls, or of pilots that enrol with it.")
    ] = "",
    site: Annotated[
        str, Parameter(help="The site of its agent or pilots.")
    ] = "",
    label: Annotated[str, Parameter(help="A description.")] = "",
    at: Common = HERE,
) -> Answer:  # fmt: skip
    """Make a token; its text is printed once and not stored."""
    seconds = units.seconds(lifetime)
    if seconds <= 0 or (uses is not None and uses < 1):
        raise errors.UsageError(
            "the token could not be used", hint="`--lifetime 1h`, `--uses 1` or more"
        )
    if not owner and scope in _PEOPLE:
        owner = getpass.getuser()
    with at.open() as project, project.db.transaction() as db:
        if scope is TokenScope.AGENT and site in files.names(project.root):
            message = f"`{site}` is a site of this project already, which needs no agent"
            raise errors.Conflict(message, hint="name the agent's site in another way")
        secret, number = tokens.mint(
            db, scope, owner, now=project.clock.now(), lifetime=seconds, pool=pool, site=site,
            label=label, uses=uses,
        )  # fmt: skip
    data: dict[str, Any] = {"id": number, "token": secret, "scope": scope, "owner": owner}
    notes = (f"token {number}, for {scope}; it is not shown again",)
    return Answer(data, (secret,), (secret,), notes)


@app.command
def ls(*, at: Common = HERE) -> Answer:
    """List all tokens, without their text."""
    with at.open() as project:
        rows = project.db.rows("token_list", most=_MOST)
        now = project.clock.now()
    data, cells = [], list[tuple[Cell, ...]]()
    for number, scope, owner, pool, site, label, created, expires, uses, revoked in rows:
        state = _state(now, expires, uses, revoked)
        data.append(
            {
                "id": number, "scope": scope, "owner": owner, "pool": pool, "site": site,
                "label": label, "created": formatting.stamp(created),
                "expires": formatting.stamp(expires),
                "uses": uses, "revoked": formatting.stamp(revoked), "state": state,
            }
        )  # fmt: skip
        shown = Styled(state, "green" if state == "good" else "dim")
        cells.append((number, scope, owner, site, shown, formatting.clock(expires), label))
    table = (Table(_HEADS, tuple(cells)),) if cells else ()
    notes = () if cells else ("no tokens: `pilotage token new user` makes one",)
    return Answer({"tokens": data}, table, tuple(row[0] for row in rows), notes)


def _state(now: float, expires: float, uses: int | None, revoked: float | None) -> str:
    if revoked is not None:
        return "revoked"
    if expires <= now:
        return "expired"
    return "used up" if uses is not None and uses < 1 else "good"


@app.command
def revoke(
    numbers: Annotated[tuple[int, ...], Parameter(help="Numbers of tokens.", required=True)],
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Revoke tokens; a running hub refuses them within two seconds."""
    with at.open() as project, project.db.transaction() as db:
        for number in numbers:
            tokens.revoke(db, number, project.clock.now())
    shown = tuple(line(f"token {number} ", Styled("is revoked", "dim")) for number in numbers)
    return Answer({"revoked": list(numbers)}, shown, numbers)
