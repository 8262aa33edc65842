"""What is said of attempts by the bus, as far as those say it who may."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import msgspec

from pilotage.base import errors
from pilotage.bus import wire
from pilotage.bus.model import Answer, Log, Status
from pilotage.bus.port import Message
from pilotage.store import Db

_log = logging.getLogger("pilotage.flow")
#: No user of a broker has this name.
_PORTED = "\n"
#: What sites say of attempts.
Word = Status | Answer | Log


class Said(msgspec.Struct, frozen=True):
    """What somebody says of attempts."""

    #: Who it is, as the broker knows them, or the site at this hub's port; empty if none is known.
    user: str
    word: Word


def read(messages: Iterable[Message]) -> list[Said]:
    """Read what sites say; what is for others, or nobody understands, is left out."""
    found: list[Said] = []
    for one in messages:
        try:
            word = wire.decode(one.body)
        except errors.BadMessage:
            # Statuses in the words of others come by the same topics.
            continue
        if isinstance(word, Word):
            found.append(Said(one.user, word))
    return found


def proved(said: Iterable[Said]) -> list[Word]:
    """Leave out what agents at this hub's port say of another site than their token is for."""
    found: list[Word] = []
    for one in said:
        if one.word.site == one.user:
            found.append(one.word)
        else:
            _log.warning("the agent of %s speaks for %s, and is not heard", one.user, one.word.site)
    return found


def own(db: Db, said: Iterable[Said]) -> Iterator[Word]:
    """Leave out what others say of a site than whom its heartbeats come from.

    Who may send those is for the broker to say; of a site that sends none, anybody is heard.
    """
    speakers: dict[str, str | None] = {}
    others: set[tuple[str, str]] = set()
    for one in said:
        site = one.word.site
        if site not in speakers:
            row = db.row("edges_one", name=site)
            # Who has enrolled at this hub's port is not heard by the broker.
            ported = db.value("agent_site", site=site) is not None
            speakers[site] = _PORTED if ported else row[1] if row else None
        if speakers[site] in (None, one.user):
            yield one.word
        elif (one.user, site) not in others:
            others.add((one.user, site))
            _log.warning("%r speaks for the site %s, and is not heard", one.user, site)
