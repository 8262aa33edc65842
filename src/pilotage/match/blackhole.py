"""The guard against black holes: nodes on which payloads fail fast, and which so eat the queue.

A node is judged against the others on jobs of the same kind: a job that fails everywhere says
nothing of a node. Of each kind every node has one vote, its latest end, however many jobs it ate.
The test is Page's CUSUM: each end adds the logarithm of how much likelier it is on a black hole
than on the other nodes, a sum below zero is reset, and a sum above the bound condemns. A good
node is condemned once in `1 / chance` ends at most (Lorden). The node then rests; after that one
job is its canary, and each relapse doubles the rest. The same guard can watch sites.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import msgspec

from pilotage.base import units
from pilotage.job.retry import AttemptEnd

#: How often a payload fails on a black hole.
_HOLE = 0.9
#: Nodes that have a vote on a kind of job: those that ended one last.
_VOTES = 64
#: Kinds of jobs by which a node is judged at once.
_KINDS = 32


class BlackHoleRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a node is condemned, and for how long."""

    #: Fast failures that it takes at least.
    least: int = 5
    #: How seldom an end may condemn a good node.
    chance: float = 1e-6
    #: Seconds within which a failure is fast; or a tenth of what such jobs take where they succeed.
    fast: float = 60.0
    #: Seconds of rest after the first time, and at most.
    rest: float = 600.0
    longest: float = 86400.0
    #: Seconds in which failures lose half of their weight, and votes all of it.
    half_life: float = 3600.0


class _Kind:
    """Votes of nodes on one kind of job."""

    __slots__ = ("votes", "wall")

    def __init__(self) -> None:
        #: For each node when its last job ended, and whether well.
        self.votes: OrderedDict[str, tuple[float, bool]] = OrderedDict()
        #: Seconds that it takes where it succeeds.
        self.wall = 0.0

    def vote(self, node: str, now: float, *, ok: bool) -> bool:
        """Record a vote; return whether the node changed it."""
        before = self.votes.get(node)
        self.votes[node] = (now, ok)
        if before is None:
            _trim(self.votes, _VOTES)
        else:
            self.votes.move_to_end(node)
        return before is None or before[1] is not ok

    def tally(self, node: str, since: float) -> tuple[int, int]:
        """Count the other nodes whose last job failed and those where it did well."""
        found = [ok for other, (time, ok) in self.votes.items() if time >= since and other != node]
        return found.count(False), found.count(True)


class _Streak:
    """The failures of a node since they began."""

    __slots__ = ("ends", "since", "time", "wall")

    def __init__(self, now: float) -> None:
        self.since = self.time = now
        #: For each kind of job how many failed and how many did well.
        self.ends: dict[Hashable, list[float]] = {}
        self.wall = 0.0


class _Sentence:
    """Why and until when a node gets no work."""

    __slots__ = ("kinds", "rest", "since", "until", "words")

    def __init__(self, rest: float, now: float, streak: _Streak, words: str) -> None:
        self.rest, self.until, self.words = rest, now + rest, words
        self.since, self.kinds = streak.since, frozenset(streak.ends)


class BlackHoleGuard:
    """Failures of nodes, and which nodes get no work."""

    def __init__(
        self, rules: BlackHoleRules | None = None, *, nodes: int = 65_536, kinds: int = 2048
    ) -> None:
        """Start empty; the numbers bound what is remembered."""
        self.rules = rules or BlackHoleRules()
        self._bounds = (nodes, kinds)
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._streaks: OrderedDict[str, _Streak] = OrderedDict()
        self._sentences: OrderedDict[str, _Sentence] = OrderedDict()
        #: The last rest of nodes that were let free again, and when.
        self._rests: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def ended(self, node: str, kind: Hashable, end: AttemptEnd, now: float) -> None:
        """Record the end of an attempt, unless it says nothing of its node.

        It says nothing if the payload never ran, was lost or was stopped, or must not run at all.
        """
        if end.wall is not None and not (end.stopped or end.lost or end.call_off):
            self.saw(node, kind, end.ok, end.wall, now)

    def saw(self, node: str, kind: Hashable, ok: bool, wall: float, now: float) -> None:  # noqa: FBT001 - how it ended
        """Record the end of a payload.

        Jobs are of one kind when one is as likely to fail as another: the same autocluster, owner
        and name.
        """
        known = self._kind(kind)
        if ok:
            known.wall = wall if not known.wall else 0.9 * known.wall + 0.1 * wall
        elif wall > max(self.rules.fast, known.wall / 10):
            # What fails in the midst of its work was not eaten by its node.
            return
        sentence = self._sentences.get(node)
        if sentence is not None:
            if now >= sentence.until:
                self._judge_canary(node, sentence, known, ok=ok, now=now)
            return
        changed = known.vote(node, now, ok=ok)
        streak = self._streaks.get(node)
        if streak is None and ok:
            return
        self._judge(node, self._went_on(node, streak, kind, ok=ok, wall=wall, now=now), now)
        if changed and not ok and self._sentences:
            self._acquit(kind, known)

    def verdict(self, node: str, now: float) -> str:
        """Return why a node gets no work; empty if it does."""
        sentence = self._sentences.get(node)
        if sentence is None:
            return ""
        left = sentence.until - now
        then = f"a job is tried in {units.for_people(left)}" if left > 0 else "a job is tried now"
        return f"{sentence.words}; it gets no work, and {then}"

    def allowance(self, node: str, now: float) -> int | None:
        """Return how many jobs a node may hold at once; None is as many as fit."""
        sentence = self._sentences.get(node)
        if sentence is None:
            return None
        return 1 if now >= sentence.until else 0

    def condemned(self) -> list[str]:
        """Return the nodes that get no work, the latest last."""
        return list(self._sentences)

    # -- judging ---------------------------------------------------------------------------------

    def _went_on(
        self, node: str, streak: _Streak | None, kind: Hashable, *, ok: bool, wall: float,
        now: float,
    ) -> _Streak:  # fmt: skip
        if streak is None:
            streak = self._streaks[node] = _Streak(now)
            _trim(self._streaks, self._bounds[0])
        kept = 0.5 ** (max(0.0, now - streak.time) / self.rules.half_life)
        streak.time = now
        for ends in streak.ends.values():
            ends[0], ends[1] = ends[0] * kept, ends[1] * kept
        counted = streak.ends.setdefault(kind, [0.0, 0.0])
        counted[ok] += 1
        if len(streak.ends) > _KINDS:
            del streak.ends[next(iter(streak.ends))]
        streak.wall = streak.wall * kept + (0.0 if ok else wall)
        return streak

    def _judge(self, node: str, streak: _Streak, now: float) -> None:
        score = failed = ended = 0.0
        against = [0, 0]
        for kind, (bad, good) in streak.ends.items():
            known = self._kinds.get(kind)
            votes = self._votes(known, node, streak.since, now) if known else (0, 0)
            rate = _upper(*votes)
            if rate >= _HOLE:
                continue
            score += bad * math.log(_HOLE / rate) + good * math.log((1 - _HOLE) / (1 - rate))
            failed, ended = failed + bad, ended + bad + good
            against = [against[0] + votes[0], against[1] + votes[1]]
        if score <= 0 and not self._unsure(streak):
            del self._streaks[node]
        elif score > -math.log(self.rules.chance) and failed > self.rules.least - 0.5:
            took = units.for_people(
                streak.wall / max(1.0, sum(one[0] for one in streak.ends.values()))
            )
            self._condemn(node, streak, now, (
                f"{failed:.0f} of {ended:.0f} payloads failed here after {took}, while the same "
                f"kind did well on {against[1]} of {sum(against)} other nodes"
            ))  # fmt: skip

    def _unsure(self, streak: _Streak) -> bool:
        """Return whether failures may still turn out to be the node's, when others have voted."""
        return any(bad >= good and bad >= 0.5 for bad, good in streak.ends.values())

    def _votes(self, known: _Kind, node: str, since: float, now: float) -> tuple[int, int]:
        """Count votes; if others fail too, only what they did since this one began to fail.

        Else the first node to get a batch of bad jobs would be held against what others did with
        the good ones before, and so would the next.
        """
        votes = known.tally(node, now - self.rules.half_life)
        return known.tally(node, since) if votes[0] else votes

    def _condemn(self, node: str, streak: _Streak, now: float, words: str) -> None:
        del self._streaks[node]
        before, freed = self._rests.pop(node, (0.0, 0.0))
        again = before and now - freed < max(before, self.rules.half_life)
        rest = min(self.rules.longest, 2 * before) if again else self.rules.rest
        self._sentences[node] = _Sentence(rest, now, streak, words)
        _trim(self._sentences, self._bounds[0])

    def _judge_canary(
        self, node: str, sentence: _Sentence, known: _Kind, *, ok: bool, now: float
    ) -> None:
        if ok:
            known.vote(node, now, ok=True)
            self._free(node, sentence, now)
        elif _upper(*self._votes(known, node, sentence.until, now)) < 0.5:
            sentence.rest = min(self.rules.longest, 2 * sentence.rest)
            sentence.until = now + sentence.rest

    def _acquit(self, kind: Hashable, known: _Kind) -> None:
        """Free nodes that were condemned for a kind of job that now fails elsewhere too."""
        for node, sentence in list(self._sentences.items()):
            if kind in sentence.kinds:
                failed, well = known.tally(node, sentence.since)
                if failed >= 2 and failed >= well:
                    del self._sentences[node]

    def _free(self, node: str, sentence: _Sentence, now: float) -> None:
        del self._sentences[node]
        self._rests[node] = (sentence.rest, now)
        _trim(self._rests, self._bounds[0])

    def _kind(self, kind: Hashable) -> _Kind:
        found = self._kinds.get(kind)
        if found is None:
            found = self._kinds[kind] = _Kind()
            _trim(self._kinds, self._bounds[1])
        else:
            self._kinds.move_to_end(kind)
        return found


def _upper(failed: int, well: int) -> float:
    """Return Wilson's upper bound of the share of nodes on which a kind of job fails."""
    count, z = failed + well, 1.96
    if not count:
        return 1.0
    share, square = failed / count, z * z / count
    spread = z * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return min(1.0, (share + square / 2 + spread) / (1 + square))


def _trim(kept: OrderedDict[Any, Any], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)
