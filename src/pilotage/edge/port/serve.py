"""One connection of an agent at the hub: frames in, calls of a bus, answers out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from typing import Any, assert_never

import msgspec

from pilotage.base import errors
from pilotage.base.supervise import Background
from pilotage.bus.port import Bus, Message
from pilotage.edge.port import model
from pilotage.pilot import messages as wire

_log = logging.getLogger("pilotage.link")
_BULK = 1 << 18
#: Verbs that are being done at once, subscriptions, and deliveries to one that asks for any number.
_MOST_TASKS = 128
_MOST_SUBSCRIPTIONS = 16
_AHEAD = 256
#: Deliveries that were acknowledged and may still be answered.
_RECENT = 256
#: Pings that may be missing, and the least and the most seconds between two.
_MISSING = 3
_BEATS_S = (1.0, 300.0)
#: The longest that a request may be waited for, in seconds.
_LONGEST_S = 60.0


class AgentSession:
    """A connection on which an agent has proved its site."""

    def __init__(
        self, bus: Bus, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, beat: float
    ) -> None:
        """Take the bus as the agent may use it, and the seconds between its pings."""
        self._bus, self._reader, self._writer = bus, reader, writer
        self._patience = _MISSING * min(max(beat, _BEATS_S[0]), _BEATS_S[1])
        self._frames = wire.Frames(model.MOST)
        self._room = asyncio.Semaphore(_MOST_TASKS)
        self._beside = Background(_log, "an agent", self._room.release)
        self._subscriptions: dict[int, asyncio.Task[None]] = {}
        #: Unacknowledged deliveries, with their subscription.
        self._held: dict[int, tuple[object, Message]] = {}
        self._recent: OrderedDict[int, Message] = OrderedDict()

    async def run(self) -> None:
        """Serve until the agent disconnects, or sends an invalid frame."""
        try:
            while True:
                async with asyncio.timeout(self._patience):
                    data = await self._reader.read(_BULK)
                if not data:
                    return
                for body in self._frames.feed(data):
                    await self._take(model.read(body))
        except errors.UsageError as error:
            await self.refuse(error)
        except (OSError, TimeoutError):
            return
        finally:
            await self._end()

    async def refuse(self, error: errors.PilotageError) -> None:
        """Send the reason why the connection ends."""
        with contextlib.suppress(OSError, TimeoutError):
            await self._send(wire.refusal(None, 0, error))

    async def _end(self) -> None:
        # However this ends, the connection is over, and unacknowledged messages are returned.
        self._writer.close()
        for task in self._subscriptions.values():
            task.cancel()
        await self._beside.end()
        await asyncio.gather(*self._subscriptions.values(), return_exceptions=True)
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _take(self, verb: model.Verb) -> None:
        match verb:
            case model.Publish() | model.Request() | model.Reply():
                # No more is read while too much is under way.
                await self._room.acquire()
                self._beside.start(self._do(verb))
            case model.Subscribe():
                self._subscribe(verb)
            case model.Unsubscribe():
                await self._unsubscribe(verb)
            case model.Ack():
                await self._ack(verb)
            case model.Ping():
                await self._send(wire.answer(verb, {}))
            case _:
                assert_never(verb)

    async def _do(self, verb: model.Publish | model.Request | model.Reply) -> None:
        await self._answer(verb, await self._called(verb))

    async def _called(self, verb: model.Publish | model.Request | model.Reply) -> bytes:
        """Call a verb; return the frame that answers it."""
        try:
            found: dict[str, Any] = {}
            match verb:
                case model.Publish():
                    body = verb.body.encode()
                    await self._bus.publish(verb.topic, body, verb.key, heard=verb.heard)
                case model.Request():
                    wait = min(max(verb.wait, 0.0), _LONGEST_S)
                    said = await self._bus.request(verb.topic, verb.body.encode(), wait)
                    found = {"body": said.decode()}
                case model.Reply():
                    _, message = self._held.get(verb.tag, (None, self._recent.get(verb.tag)))
                    if message is not None:
                        await message.reply(verb.body.encode())
            return wire.answer(verb, found)
        except Exception as error:  # noqa: BLE001 - who asked must not wait for ever
            return wire.refusal(verb.n, verb.p, _told(error))

    async def _answer(self, verb: wire.Message, frame: bytes) -> None:
        if verb.n is not None:
            with contextlib.suppress(OSError, TimeoutError):
                await self._send(frame)

    async def _send(self, frame: bytes) -> None:
        """Send; close the connection of a peer that does not read."""
        self._writer.write(frame)
        try:
            async with asyncio.timeout(self._patience):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise

    # -- deliveries ------------------------------------------------------------------------------

    def _subscribe(self, verb: model.Subscribe) -> None:
        if verb.id in self._subscriptions or len(self._subscriptions) >= _MOST_SUBSCRIPTIONS:
            raise errors.UsageError("there are too many subscriptions, or two with one number")
        task = asyncio.get_running_loop().create_task(self._pump(verb))
        self._subscriptions[verb.id] = task

    async def _pump(self, verb: model.Subscribe) -> None:
        """Deliver the messages of a pattern until cancelled."""
        mine = object()
        try:
            ahead = min(max(verb.ahead, 0) or _AHEAD, model.MOST)
            async with self._bus.subscribe(verb.pattern, ahead=ahead) as messages:
                await self._answer(verb, wire.answer(verb, {}))
                async for one in messages:
                    self._held[one.tag] = (mine, one)
                    await self._send(wire.frame(_delivery(verb.id, one)))
        except (OSError, TimeoutError):
            self._writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - who asked must not wait for ever
            # A retry may use the same number.
            self._subscriptions.pop(verb.id, None)
            await self._answer(verb, wire.refusal(verb.n, verb.p, _told(error)))
        finally:
            for tag in [tag for tag, (of, _) in self._held.items() if of is mine]:
                del self._held[tag]

    async def _unsubscribe(self, verb: model.Unsubscribe) -> None:
        task = self._subscriptions.pop(verb.id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._answer(verb, wire.answer(verb, {}))

    async def _ack(self, verb: model.Ack) -> None:
        found = [self._held.pop(tag)[1] for tag in dict.fromkeys(verb.tags) if tag in self._held]
        if not found:
            return
        await self._bus.ack(*found, done=verb.done)
        for one in found:
            self._recent[one.tag] = one
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)


def _delivery(to: int, one: Message) -> bytes:
    made = model.DeliveryFrame(
        to=to, tag=one.tag, topic=one.topic, body=one.body.decode(), key=one.key, user=one.user,
        again=one.again,
    )  # fmt: skip
    return msgspec.json.encode(made)


def _told(error: Exception) -> errors.PilotageError:
    if isinstance(error, errors.PilotageError):
        return error
    _log.error("a frame of an agent could not be dealt with", exc_info=error)
    return errors.PilotageError("an internal error of the hub", hint="its log says more")
