"""Sending of notifications: by the broker in order for each flow, by HTTPS, and by a mail program.

The last two are repeated until they succeed, with growing pauses, for about a day.
"""

from __future__ import annotations

import functools
import logging
import subprocess
from collections.abc import Callable, Sequence
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from pilotage.base import crash, errors, text
from pilotage.base.wakeup import Wakeup, patience
from pilotage.bus.port import Bus
from pilotage.flow import notify
from pilotage.flow.notify import Channel, Notification
from pilotage.project import settings as config
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
_KINDS: tuple[Channel, ...] = ("status",)
#: Messages read together, and messages on the way to the broker at once.
_MOST = 1000
_AT_ONCE = 200
#: Seconds before a message is retried that the broker did not accept.
_PAUSE_S = 1.0


class BrokerSender:
    """Sends notifications by the broker."""

    def __init__(
        self, bus: Bus, writer: Writer, reader: Db, now: Callable[[], float], bell: Wakeup
    ) -> None:
        """Take the store; `bell` rings when there may be something to send."""
        self._bus, self._writer, self._reader = bus, writer, reader
        self._now, self._bell = now, bell
        self._trouble = ""
        #: Lines whose next message could not be sent, up to which one all were tried, and until
        #: when others come before them.
        self._stuck: set[tuple[int, str]] = set()
        self._after, self._due = 0, 0.0

    async def run(self) -> None:
        """Send until cancelled."""
        more = False
        while True:
            if self._stuck and not more and anyio.current_time() >= self._due:
                self._stuck, self._after = set(), 0
            words = notify.unsent(self._reader, _KINDS, self._now(), after=self._after, most=_MOST)
            more = len(words) == _MOST
            if words:
                await self._round([one for one in words if one.line not in self._stuck])
                # A message that the broker rejects must not block those after it.
                self._after = words[-1].id if self._stuck else 0
            elif self._stuck:
                await self._bell.wait(max(0.0, self._due - anyio.current_time()))
            else:
                self._all_sent()
                due = self._reader.value("flows_next_word", now=self._now())
                await self._bell.wait(patience(due, self._now()))

    def _all_sent(self) -> None:
        if self._trouble:
            self._trouble = ""
            _log.info("messages of flows are sent again")

    async def _round(self, words: Sequence[Notification]) -> None:
        """Send some messages, those of different lines at once."""
        lines: dict[tuple[int, str], list[Notification]] = {}
        for word in words:
            lines.setdefault(word.line, []).append(word)
        gone: list[Notification] = []
        room = anyio.Semaphore(_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for line in lines.values():
                tasks.start_soon(self._line, line, gone, room)
        crash.point("flow.published")
        if gone:
            await self._writer.run(functools.partial(notify.sent, words=gone))
            crash.point("flow.sent")

    async def _line(
        self, words: Sequence[Notification], gone: list[Notification], room: anyio.Semaphore
    ) -> None:  # fmt: skip
        """Send one after the other, up to the first that fails."""
        for word in words:
            async with room:
                try:
                    await self._bus.publish(word.topic, word.body.encode(), f"flow:{word.id}")
                except (errors.Denied, errors.UsageError) as error:
                    # Each retry would cost the connection, with all messages on the way.
                    _log.warning("%s", error)
                    gone.append(word)
                    return
                except errors.PilotageError as error:
                    self._complain(error)
                    self._leave(word)
                    return
            gone.append(word)

    def _leave(self, word: Notification) -> None:
        """Block the line of a message for a while."""
        if not self._stuck:
            self._due = anyio.current_time() + _PAUSE_S
        self._stuck.add(word.line)

    def _complain(self, error: errors.PilotageError) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("messages of flows wait: %s", error)


_ENDS: tuple[Channel, ...] = ("webhook", "email")
_ENDS_AT_ONCE = 10
_PATIENCE_S = 20.0
#: The most tries, which are 15 s apart in the end.
_MOST_TRIES = 2000
_LONGEST = 200


class EndNotifier:
    """Sends ends of flows by HTTPS and by mail."""

    def __init__(
        self, settings: config.FlowSettings, writer: Writer, reader: Db, now: Callable[[], float],
        bell: Wakeup,
    ) -> None:  # fmt: skip
        """Take the store; `bell` rings when there may be something to send."""
        self._settings, self._writer, self._reader = settings, writer, reader
        self._now, self._bell = now, bell
        self._told: set[str] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            now = self._now()
            words = notify.unsent(self._reader, _ENDS, now, after=0, most=_ENDS_AT_ONCE)
            if not words:
                due = self._reader.value("flows_next_word", now=now)
                await self._bell.wait(patience(due, now))
                continue
            async with anyio.create_task_group() as tasks:
                for word in words:
                    tasks.start_soon(self._one, word)

    async def _one(self, word: Notification) -> None:
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
        except Exception:  # noqa: BLE001 - an unexpected error blocks only this message
            _log.exception("flow %d: this is a mistake in Pilotage", word.flow)
            await self._later(word)
        else:
            crash.point("flow.told")
            await self._done(word)

    async def _later(self, word: Notification) -> None:
        if word.tries >= _MOST_TRIES:
            await self._done(word)
            return
        step = functools.partial(notify.later, word=word, now=self._now())
        await self._writer.run(step)

    async def _done(self, word: Notification) -> None:
        await self._writer.run(lambda db: notify.sent(db, [word]))

    async def _call(self, word: Notification) -> None:
        check_webhook(word.topic, self._settings.webhooks)
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
            raise errors.Unavailable(f"{place} was not notified: {error}") from error
        if not httpx2.codes.is_success(status):
            raise errors.Unavailable(f"{place} was not notified: it answers with status {status}")

    async def _mail(self, word: Notification) -> None:
        program = self._settings.mail
        if not program:
            raise errors.Denied("no mail is sent: `flows.mail` names no program")
        body = mail(word.topic, text.load(word.body))
        try:
            await anyio.to_thread.run_sync(_pipe, program, body)
        except (OSError, subprocess.SubprocessError) as error:
            raise errors.Unavailable(f"{program[0]} did not take a mail: {error}") from error


def check_webhook(url: str, hosts: tuple[str, ...]) -> None:
    """Refuse a webhook that the settings do not allow."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise errors.Denied("the webhook is no URL") from None
    name = f"{host}:{port}" if port else host
    if parts.scheme != "https" or parts.username is not None or parts.password is not None:
        raise errors.Denied("a webhook is an `https://` URL with no name and no password in it")
    if name not in hosts:
        raise errors.Denied(f"`{name}` is not notified: it is not among `flows.webhooks`")


def mail(address: str, said: dict[str, Any]) -> bytes:
    """Return the mail on the end of a flow."""
    message = EmailMessage(policy=SMTP)
    # The library rejects a line end in a header.
    try:
        message["To"] = _line(address)
    except Exception as error:  # it trips over odd addresses in many ways
        raise errors.Denied(f"no mail can be sent to {_line(address)!r}") from error
    message["Subject"] = _line(f"Pilotage: {said['name']} ({said['flow']}) is {said['state']}")
    message["Auto-Submitted"] = "auto-generated"
    words = text.show(said["text"]) or f"The flow is {said['state']}."
    message.set_content(f"{words}\n\n`pilotage flow show {said['flow']}` shows more.\n")
    return message.as_bytes()


def _line(words: str) -> str:
    return "".join(one if one.isprintable() else " " for one in words)[:_LONGEST]


def _pipe(program: tuple[str, ...], body: bytes) -> None:
    subprocess.run(
        list(program), input=body, check=True, timeout=_PATIENCE_S, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
