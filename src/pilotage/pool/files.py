"""Files of pools: `pools/NAME.toml`, strictly decoded and checked."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from pilotage.base import errors, toml, units
from pilotage.batch.pilot_request import PilotRequest
from pilotage.pool.controller import (
    Linear,
    RelativeSupply,
    Rule,
    Scales,
    Stepwise,
    Thresholds,
    judge,
)
from pilotage.pool.efficiency import Efficiency
from pilotage.pool.fitness import Basis
from pilotage.pool.model import Controller
from pilotage.pool.outside import Carried, Told
from pilotage.pool.policy.aimd import Hinted, Windowed

FOLDER = "pools"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
#: Parameters of the AIMD policy that are durations.
_TIMES = ("patience", "haste", "rest")
#: Those that are divided by, so that they cannot be nothing, and the others.
_ABOVE = ("patience", "haste", "hedge", "stretch", "light")
_ANY = ("rest", "ski", "tolerate", "headroom")


class Aimd(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="aimd",
    tag_field="kind",
):  # fmt: skip
    """The AIMD policy: feedback first, and the queue's hint as far as pilots agree."""

    #: Whether the queue is heard; without it, how well pilots are used must do.
    hint: bool = True
    #: Time that jobs must wait before pilots are ordered for them, such as `"15m"`.
    patience: str = ""
    #: Time that jobs must wait before draining pilots are recalled.
    haste: str = ""
    #: Time that an idle pilot is kept.
    rest: str = ""
    #: It is kept longer by this part of the time that another would take to come.
    ski: float | None = None
    #: Part of the cores in use that may wait without an order.
    tolerate: float | None = None
    #: Cores on order for each core that is needed.
    hedge: float | None = None
    #: Part of the cores in use that may be free before the emptiest pilots are drained.
    headroom: float | None = None
    #: Part of a pilot that must be free for it to be drained.
    light: float | None = None
    #: Part by which pilots on order may exceed those that came.
    stretch: float | None = None

    def policy(self, *, hints: bool = True) -> Hinted | Windowed:
        """Return what decides."""
        heard = self.hint and hints
        kind: type[Hinted | Windowed] = Hinted if heard else Windowed
        given: dict[str, Any] = {}
        for key in kind.__struct_fields__:
            value = getattr(self, key, None)
            if value not in (None, ""):
                given[key] = units.seconds(value) if key in _TIMES else value
        return kind(**given)


class Even(Thresholds, frozen=True, kw_only=True, tag="linear", tag_field="kind"):
    """COBalD's linear controller."""

    #: Cores by which the demand changes in a second.
    rate: float = 1.0


class Relative(Scales, frozen=True, kw_only=True, tag="relative", tag_field="kind"):
    """COBalD's relative supply controller."""

    #: Cores that are asked for where there are none, since a multiple of nothing is nothing.
    first: float = 1.0


class SupplyStep(Thresholds, frozen=True, kw_only=True):
    """What holds from a supply on: a fixed demand, or a rate."""

    #: Number of cores from which on it applies; the first step begins with 0.
    supply: float = 0.0
    #: Cores that are asked for, whatever is seen.
    demand: float | None = None
    #: Cores by which the demand changes in a second.
    rate: float = 1.0

    def rule(self) -> Rule:
        """Return what decides in this range."""

        def fixed(_seen: Any, _elapsed: float) -> float | None:  # noqa: ANN401 - a reading
            return self.demand

        def linear(seen: Any, elapsed: float) -> float | None:  # noqa: ANN401 - a reading
            _, way = judge(seen, self.low_utilisation, self.high_allocation)
            return float(seen.demand + way * self.rate * elapsed) if way else None

        return linear if self.demand is None else fixed


class SupplySteps(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="stepwise",
    tag_field="kind",
):  # fmt: skip
    """COBalD's stepwise controller, in a table."""

    #: Ranges of the supply, and what holds in each.
    step: tuple[SupplyStep, ...] = (SupplyStep(),)


class Outside(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="outside",
    tag_field="kind",
):  # fmt: skip
    """An external controller decides, such as `pilotage pool run`; the hub carries it out."""

    #: After this long without a demand, no controller counts as active.
    silence: str = "10m"
    #: What becomes of it then: it stays as it was asked for last, or goes to its minimum.
    after: Literal["hold", "minimum"] = "hold"

    @property
    def seconds(self) -> float:
        """Seconds of silence."""
        return units.seconds(self.silence)


Control = Aimd | Even | Relative | SupplySteps | Outside


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file `pools/NAME.toml`."""

    #: The site that its pilots run at, as in `sites/NAME.toml`.
    site: str
    #: Cores that it has at most.
    maximum: int
    #: Cores that it has at least, used or not.
    minimum: int = 0
    #: Pilots that may wait in the batch queue at once.
    pending: int = 10
    #: Time between two decisions.
    interval: str = "30s"
    #: More cores than this must be allowed by a person; 0 means no limit.
    ask_above: int = 0
    #: What counts as used: what jobs ask for, what they are measured to use of it, how busy they
    #: keep the cores that they have, or the worse of the first and the last.
    utilisation: Basis = Basis.CLAIMED
    #: For people.
    about: str = ""
    #: What each of its pilots is.
    pilot: PilotRequest = PilotRequest()
    #: How its demand is decided.
    control: Control = Aimd()
    #: When it gives pilots back because their cores are not kept busy.
    efficiency: Efficiency = Efficiency()

    @property
    def seconds(self) -> float:
        """Seconds between two decisions."""
        return units.seconds(self.interval)

    def controller(self, told: Told | None = None, now: float = 0.0) -> Controller | None:
        """Return the controller of this pool; None if the AIMD policy decides for all together.

        `told` is what was asked for from outside, which counts only where that is what decides.
        """
        match self.control:
            case Aimd():
                return None
            case Even() as one:
                return Linear(one.low_utilisation, one.high_allocation, one.rate, self.seconds)
            case Relative() as one:
                return RelativeSupply(
                    one.low_utilisation, one.high_allocation, one.low_scale, one.high_scale,
                    self.seconds, one.first,
                )  # fmt: skip
            case SupplySteps(step=steps):
                rules = tuple((one.supply, one.rule()) for one in steps[1:])
                return Stepwise(steps[0].rule(), rules, self.seconds)
            case Outside() as one:
                least = float(self.minimum)
                return Carried(told, one.seconds, one.after, least, now, self.seconds)


def check(name: str, pool: Pool) -> None:
    """Raise `ConfigError` for what cannot be."""
    if not _NAME.fullmatch(name):
        message = f"{name!r} cannot be the name of a pool"
        raise errors.ConfigError(message, hint="letters, digits, `-` and `_`")
    with toml.at("pilot"):
        pool.pilot.check()
    if pool.maximum < pool.pilot.cpus:
        message = f"`maximum` cannot be {pool.maximum}: one pilot has {pool.pilot.cpus} cores"
        raise errors.ConfigError(message, keys=("maximum",))
    if not 0 <= pool.minimum <= pool.maximum:
        message = f"`minimum` cannot be {pool.minimum}: `maximum` is {pool.maximum}"
        raise errors.ConfigError(message, keys=("minimum",))
    if pool.pending < 1:
        message = f"`pending` cannot be {pool.pending}: no pilot would ever come"
        raise errors.ConfigError(message, keys=("pending",))
    if pool.ask_above < 0:
        raise errors.ConfigError(f"`ask_above` cannot be {pool.ask_above}", keys=("ask_above",))
    with toml.at("interval"):
        if not pool.seconds > 0:
            raise errors.ConfigError(f"`interval` cannot be {pool.interval}")
    with toml.at("efficiency"):
        pool.efficiency.check()
    with toml.at("control"):
        _check_control(pool)


def _check_control(pool: Pool) -> None:
    match pool.control:
        case Aimd() as one:
            _bounds(one)
        case SupplySteps(step=steps) if not steps or steps[0].supply:
            message = "`step` cannot begin above 0: the first has no `supply`"
            raise errors.ConfigError(message, keys=("step",))
        case Outside() as one if not one.seconds > 0:
            message = f"`control.silence` cannot be {one.silence}"
            raise errors.ConfigError(message, keys=("silence",))
        case _:
            pool.controller()


def _bounds(control: Aimd) -> None:
    """Raise `ConfigError` for parameters of the AIMD policy that cannot be."""
    policy = control.policy()
    for key in (*_ABOVE, *_ANY):
        value = getattr(policy, key, 1.0)
        if not 0 <= value < math.inf or (key in _ABOVE and not value):
            message = f"`control.{key}` cannot be {getattr(control, key)}"
            raise errors.ConfigError(message, keys=(key,))


def _prepare(found: dict[str, Any]) -> None:
    if isinstance(found.get("control"), dict):
        found["control"].setdefault("kind", "aimd")


POOLS = toml.TomlFolder(
    folder=FOLDER, kind=Pool, noun="pool", page="pools",
    hint=f"a pool is a file `{FOLDER}/NAME{toml.SUFFIX}`", check=check, prepare=_prepare,
)  # fmt: skip
file_of, names, read, parse = POOLS.file, POOLS.names, POOLS.read, POOLS.parse
