"""Ends of flows are told outside: by HTTPS to hosts that the settings name, and by a mail program.

Both are tried again until they succeed, with longer and longer rests; after a day it is given up.
"""

from __future__ import annotations

import functools
import logging
import subprocess
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from pilotage.base import crash, errors, text
from pilotage.base.wakeup import Wakeup, patience
from pilotage.flow import outbox
from pilotage.flow.outbox import Kind, Word
from pilotage.project import settings as config
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
_KINDS: tuple[Kind, ...] = ("webhook", "email")
_AT_ONCE = 10
_PATIENCE_S = 20.0
#: Tries after which nobody is told any more: they are a quarter of a minute apart in the end.
_MOST_TRIES = 2000
_LONGEST = 200


class Post:
    """Tells ends of flows to those who are not at the broker."""

    def __init__(
        self, settings: config.FlowSettings, writer: Writer, reader: Db, now: Callable[[], float],
        bell: Wakeup,
    ) -> None:  # fmt: skip
        """Get ready; `bell` rings when there may be something to tell."""
        self._settings, self._writer, self._reader = settings, writer, reader
        self._now, self._bell = now, bell
        self._told: set[str] = set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            now = self._now()
            words = outbox.unsent(self._reader, _KINDS, now, after=0, most=_AT_ONCE)
            if not words:
                due = self._reader.value("flows_next_word", now=now)
                await self._bell.wait(patience(due, now))
                continue
            async with anyio.create_task_group() as tasks:
                for word in words:
                    tasks.start_soon(self._one, word)

    async def _one(self, word: Word) -> None:
        try:
            await (self._call(word) if word.kind == "webhook" else self._mail(word))
        except errors.Denied as error:
            _log.warning("flow %d: %s", word.flow, error)
            await self._done(word)
        except errors.Unavailable as error:
            if str(error) not in self._told:
                self._told = {str(error)}
                _log.warning("flow %d: %s; it is tried again", word.flow, error)
            await self._later(word)
        except Exception:  # noqa: BLE001 - one that nobody foresaw keeps no other from being told
            _log.exception("flow %d: this is a mistake in Pilotage", word.flow)
            await self._later(word)
        else:
            crash.point("flow.told")
            await self._done(word)

    async def _later(self, word: Word) -> None:
        if word.tries >= _MOST_TRIES:
            await self._done(word)
            return
        step = functools.partial(outbox.later, word=word, now=self._now())
        await self._writer.run(step)

    async def _done(self, word: Word) -> None:
        await self._writer.run(lambda db: outbox.sent(db, [word]))

    async def _call(self, word: Word) -> None:
        check(word.topic, self._settings.webhooks)
        place = urlsplit(word.topic).hostname
        headers = {"Content-Type": "application/json", "Idempotency-Key": f"flow-{word.id}"}
        try:
            async with httpx2.AsyncClient(timeout=_PATIENCE_S, follow_redirects=False) as client:
                with anyio.fail_after(_PATIENCE_S):
                    async with client.stream(
                        "POST", word.topic, content=word.body.encode(), headers=headers
                    ) as answer:
                        status = answer.status_code
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError) as error:
            raise errors.Unavailable(f"{place} was not told: {error}") from error
        if not httpx2.codes.is_success(status):
            raise errors.Unavailable(f"{place} was not told: it answers with status {status}")

    async def _mail(self, word: Word) -> None:
        program = self._settings.mail
        if not program:
            raise errors.Denied("no mail is sent: `flows.mail` names no program")
        body = mail(word.topic, text.load(word.body))
        try:
            await anyio.to_thread.run_sync(_pipe, program, body)
        except (OSError, subprocess.SubprocessError) as error:
            raise errors.Unavailable(f"{program[0]} did not take a mail: {error}") from error


def check(url: str, hosts: tuple[str, ...]) -> None:
    """Refuse a webhook that is not one of those that the settings allow."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise errors.Denied("the webhook is no URL") from None
    name = f"{host}:{port}" if port else host
    if parts.scheme != "https" or parts.username is not None or parts.password is not None:
        raise errors.Denied("a webhook is an `https://` URL with no name and no password in it")
    if name not in hosts:
        raise errors.Denied(f"`{name}` is not told: it is not among `flows.webhooks`")


def mail(address: str, said: dict[str, Any]) -> bytes:
    """Write a mail on the end of a flow."""
    message = EmailMessage(policy=SMTP)
    # Of a line end in a header the library would make an error.
    try:
        message["To"] = _line(address)
    except Exception as error:  # it trips over odd addresses in many ways
        raise errors.Denied(f"no mail can be sent to {_line(address)!r}") from error
    message["Subject"] = _line(f"Pilotage: {said['name']} ({said['flow']}) is {said['state']}")
    message["Auto-Submitted"] = "auto-generated"
    words = text.show(said["text"]) or f"The flow is {said['state']}."
    message.set_content(f"{words}\n\n`pilotage flow show {said['flow']}` tells more.\n")
    return message.as_bytes()


def _line(words: str) -> str:
    return "".join(one if one.isprintable() else " " for one in words)[:_LONGEST]


def _pipe(program: tuple[str, ...], body: bytes) -> None:
    subprocess.run(
        list(program), input=body, check=True, timeout=_PATIENCE_S, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
