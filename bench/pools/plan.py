"""Laws for pools in six scenarios: COBalD's own controllers, the job-to-resource way, and ours."""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import msgspec

from bench import machine
from bench.figure import Figure, Goal, figure
from bench.pools import cobald, roced, scale
from bench.pools.setups import DOCUMENTED, TUNED
from pilotage.pool.policy.aimd import Hinted, Windowed
from pilotage.pool.simulate.model import Figures
from pilotage.pool.simulate.run import Steer, run
from pilotage.pool.simulate.scenario import SCENARIOS
from pilotage.pool.simulate.wheel import wheel
from pilotage.pool.simulate.world import World


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything; the seeds were never used before."""

    repeats: int = 20
    first: int = 4001


QUICK = Plan(repeats=1)

_BEST = "COBalD, best tuned"
_PLAIN = "COBalD, documented"
_ROCED = "ROCED"
_BOUND = "no latency"
#: Our laws, and what J may be of COBalD's best, over all scenarios.
_OURS = {"exact hint": 0.66, "noisy hint": 0.71, "feedback alone": 0.77}
#: Utilisation, and hours that jobs wait.
_WANTED = {
    "shifting": (0.83, 0.55),
    "bursty": (0.72, 0.9),
    "slowq": (0.85, 1.8),
    "blackhole": (0.82, 0.65),
    "steady": (0.85, 0.35),
    "overload": (0.90, 23.0),
}
#: What was found: by scenario, by who steered, one for each seed.
_Found = dict[str, dict[str, list[Figures]]]


def figures(plan: Plan) -> Iterator[Figure]:
    """Run everything on the same dice, one after the other."""
    found: _Found = defaultdict(lambda: defaultdict(list))
    with cobald.running() as peer:
        for seed in range(plan.first, plan.first + plan.repeats):
            for name, scenario in SCENARIOS.items():
                for who, setup in {_PLAIN: DOCUMENTED, **TUNED}.items():
                    found[name][who].append(peer.run(name, seed, setup))
                found[name][_ROCED].append(run(scenario, seed, roced.steer))
                instant = wheel(_instant(), hints="exact")
                found[name][_BOUND].append(run(scenario, seed, instant, instant=True))
                for who in _OURS:
                    found[name][who].append(run(scenario, seed, _wheel(who)))
                _tell(seed, name, found[name])
    for name in SCENARIOS:
        found[name][_BEST] = _best(found[name])
    yield from _pooled(found)
    for name in SCENARIOS:
        yield from _scenario(name, found[name])
    size = "10 000 pools, 100 000 drones, one cycle"
    for who, times in (("hints", scale.seconds), ("feedback alone", scale.alone)):
        yield figure(f"{size}, {who}", "s", times(max(2, plan.repeats // 2)), goal=Goal(1.0))


def _wheel(who: str) -> Callable[[World], Steer]:
    if who == "feedback alone":
        return wheel(Windowed())
    return wheel(Hinted(), hints=who.split(maxsplit=1)[0])


def _instant() -> Hinted:
    return Hinted(patience=60.0, haste=60.0, tolerate=0.0, hedge=1.0, stretch=100.0, fresh=1.0)


def _best(found: dict[str, list[Figures]]) -> list[Figures]:
    """Return the tuned set-up that was best here, chosen in hindsight."""
    return min((found[who] for who in TUNED), key=lambda runs: statistics.mean(_scores(runs)))


def _scores(runs: Sequence[Figures]) -> list[float]:
    return [one.score() for one in runs]


def _pooled(found: _Found) -> Iterator[Figure]:
    for who, bound in _OURS.items():
        ratios = _ratios(found, who)
        yield figure(
            f"J of COBalD's best, all scenarios, {who}",
            "",
            ratios,
            peers={other: _ratios(found, other) for other in (_BEST, _PLAIN, _ROCED)},
            limit=_ratios(found, _BOUND),
            goal=Goal(bound),
            note=f"{_spread(ratios)} over seeds of the geometric mean of six scenarios",
        )
    for who in _OURS:
        runs = [one for scenario in found.values() for one in scenario[who]]
        yield figure(
            f"orders in a run, most, {who}", "orders", [max(one.orders for one in runs)],
            goal=Goal(2000),
        )  # fmt: skip
        whole = [one for name, scenario in found.items() if name != "blackhole"
                 for one in scenario[who]]  # fmt: skip
        unused = 100 * sum(one.unused for one in whole) / sum(one.drones for one in whole)
        yield figure(
            f"drones that never ran a job, {who}", "%", [unused], goal=Goal(2.0),
            note="without those that the black hole killed",
        )  # fmt: skip


def _spread(values: Sequence[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"mean {statistics.mean(values):.3f}, standard deviation {deviation:.3f}"


def _ratios(found: _Found, who: str) -> list[float]:
    """Return for each seed the mean over scenarios of J beside the best of COBalD."""
    logs = [
        # Seeds differ by more than laws do, so each is compared with its like.
        [
            math.log(ours / other)
            for ours, other in zip(_scores(runs[who]), _scores(runs[_BEST]), strict=True)
        ]
        for runs in found.values()
    ]
    return [math.exp(statistics.mean(each)) for each in zip(*logs, strict=True)]


def _scenario(name: str, found: dict[str, list[Figures]]) -> Iterator[Figure]:
    peers = (_BEST, _PLAIN, _ROCED)
    for who in _OURS:
        yield figure(
            f"J, {name}, {who}",
            "",
            _scores(found[who]),
            peers={other: _scores(found[other]) for other in peers},
            limit=_scores(found[_BOUND]),
            goal=Goal(1, _BEST),
            note=_spread(_scores(found[who])),
        )
    used, wait = _WANTED[name]
    yield figure(
        f"utilisation, {name}, exact hint",
        "",
        [one.utilisation for one in found["exact hint"]],
        better="more",
        peers={other: [one.utilisation for one in found[other]] for other in peers},
        goal=Goal(used),
    )
    yield figure(
        f"wait, {name}, exact hint",
        "h",
        [one.wait for one in found["exact hint"]],
        peers={other: [one.wait for one in found[other]] for other in peers},
        goal=Goal(wait),
    )


def _tell(seed: int, name: str, found: dict[str, list[Figures]]) -> None:
    words = ", ".join(f"{who} {runs[-1].score():.3f}" for who, runs in found.items())
    print(f"{seed} {name}: {words}  (load {machine.load()})", file=sys.stderr, flush=True)
