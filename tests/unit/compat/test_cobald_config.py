"""Files of COBalD: what loads, what it becomes, and what is refused."""

from __future__ import annotations

import importlib.metadata
import logging
import logging.config
import math
import os
import subprocess
import sys
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.compat.cobald import foreign
from pilotage.compat.cobald.build import load, load_file
from pilotage.compat.cobald.document import Element, read
from pilotage.compat.cobald.logs import JsonFormatter, LineProtocolFormatter
from pilotage.pool.composite import Composite, Factory
from pilotage.pool.controller import Linear, RelativeSupply, Stepwise, Switch
from pilotage.pool.decorator import Buffer, Logger, Standardiser
from pilotage.pool.pipeline import Bound, Leaf, Pipeline, explain


class Plain:
    def __init__(self, demand: float = 10.0, supply: float = 10.0) -> None:
        self.demand, self.supply = demand, supply
        self.utilisation = self.allocation = 0.9


class Halver:
    """A decorator as COBalD's are."""

    def __init__(self, target, by: float = 2.0) -> None:
        self.target, self.by = target, by

    supply = property(lambda self: self.target.supply)
    utilisation = property(lambda self: self.target.utilisation)
    allocation = property(lambda self: self.target.allocation)

    @property
    def demand(self) -> float:
        return float(self.target.demand * self.by)

    @demand.setter
    def demand(self, value: float) -> None:
        self.target.demand = value / self.by


class Greedy:
    """A controller as COBalD's are."""

    def __init__(self, target, interval: float = 3.0) -> None:
        self.target, self.interval = target, interval

    def regulate(self, interval: float) -> None:
        if self.target.supply < 100:
            self.target.demand += interval


class Unbound:
    base = staticmethod(lambda pool, interval: 5.0)
    rules = ((10.0, lambda pool, interval: 50.0),)


@pytest.fixture
def others(monkeypatch):
    """Return what may be allowed: a package of others."""
    module = types.ModuleType("others")
    names = {"Plain": Plain, "Halver": Halver, "Greedy": Greedy, "bad": lambda **_: 3}
    for one in (*names.values(), Unbound.base):
        monkeypatch.setattr(one, "__module__", "others")
    vars(module).update(names, steps=Unbound(), os=os, run=subprocess.run)
    sys.modules["others"] = module
    yield ("others.*",)
    del sys.modules["others"]


POOL = {"!Pool": Plain, "the.Pool": Plain}


def loaded(text: str, **more):
    return load(text, file="c.yaml", makers=POOL, **more)


def stages(made: Pipeline) -> list[Any]:
    found: list[Any] = [made.controller]
    below = made.target
    while isinstance(below, Bound):
        found.append(below.decorator)
        below = below.target
    return [*found, below]


def test_tags_and_dotted_names_become_ours():
    made = loaded("""
pipeline:
    - !RelativeSupplyController
        low_utilisation: 0.2
        high_scale: 1.5
    - !Buffer [30]
    - !Logger {name: log, level: 10}
    - __type__: cobald.decorator.limiter.Limiter
      minimum: 1
      maximum: .inf
    - !Standardiser
    - !Pool
""")
    *above, pool = stages(made.pipeline)
    assert above == [
        RelativeSupply(low_utilisation=0.2, high_scale=1.5),
        Buffer(30),
        Logger("log", level=10),
        Standardiser(1, math.inf),
        Standardiser(),
    ]
    assert isinstance(pool, Leaf)
    assert made.logging is None
    assert made.advice == ()


def test_numbers_that_yaml_takes_for_text_are_numbers():
    made = loaded("pipeline: [!LinearController {rate: 1e3}, !Pool ]")
    assert made.pipeline.controller == Linear(rate=1000)


def test_anchors_and_merges_are_followed():
    made = loaded("""
pipeline:
    - !LinearController &band {low_utilisation: 0.1, rate: 2}
    - !Limiter {<<: [{maximum: 7}, {maximum: 8, minimum: 2}]}
    - !Pool
""")
    assert stages(made.pipeline)[1] == Standardiser(2, 7)


def test_composites_hold_pools_and_pipelines_of_their_own():
    made = loaded("""
pipeline:
    - !LinearController
    - !Limiter {maximum: 100}
    - __type__: cobald.composite.weighted.WeightedComposite
      __args__:
        - pipeline:
          - !Limiter {maximum: 5}
          - !Pool
        - !UniformComposite
          - !Pool
          - !Pool
      weight: allocation
""")
    whole = stages(made.pipeline)[-1]
    assert isinstance(whole, Composite)
    assert [type(one) for one in whole.children] == [Bound, Composite]
    made.pipeline.tick(1)
    assert whole.demand == 31


def test_a_switch_by_tag():
    made = loaded("""
pipeline:
    - !DemandSwitch
      - !LinearController
      - 10
      - !RelativeSupplyController
    - !Pool
""")
    assert made.pipeline.controller == Switch(Linear(), ((10.0, RelativeSupply()),))


def test_a_factory_makes_what_the_file_says():
    made = loaded("""
pipeline:
    - !LinearController
    - !FactoryPool
      factory: {__type__: the.Pool, demand: 4}
      interval: 60
""")
    factory = stages(made.pipeline)[-1]
    assert isinstance(factory, Factory)
    factory.act(factory.plan(factory.view(), 9, 60))
    assert [one.demand for one in factory.children] == [4, 4, 4]


def test_classes_of_others_stand_where_ours_do(others):
    made = loaded(
        """
pipeline:
    - __type__: others.Greedy
      interval: 5
    - __type__: others.Halver
      by: 4
    - __type__: others.Plain
      demand: 8
""",
        allow=others,
    )
    assert made.pipeline.interval == 5
    pool = stages(made.pipeline)[-1].pool
    plan = made.pipeline.plan(made.pipeline.view(), 8)
    assert pool.demand == 8
    assert explain(plan) == [
        "Decider: Greedy asks for 40 and does not say why",
        "  Decorator: Halver makes 10 of it",
    ]
    made.pipeline.act(plan)
    assert pool.demand == 10
    pool.supply = 200
    assert made.pipeline.tick(1).words == "Greedy leaves it as it is"
    assert pool.demand == 10


def test_the_stepwise_of_others_becomes_ours(others):
    text = "pipeline: [{__type__: others.steps, interval: 9}, !Pool ]"
    made = loaded(text, allow=others)
    assert isinstance(made.pipeline.controller, Stepwise)
    assert made.pipeline.interval == 9
    made.pipeline.tick(1)
    assert stages(made.pipeline)[-1].pool.demand == 50


def test_the_tag_of_an_installed_package_needs_the_same_leave(others, monkeypatch):
    entry = types.SimpleNamespace(name="Greedy", value="others:Greedy")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    text = "pipeline: [!Greedy {interval: 2}, !Pool ]"
    assert loaded(text, allow=others).pipeline.interval == 2
    with pytest.raises(errors.ConfigError, match=r"`others.Greedy` is not one of ours"):
        loaded(text)


def test_a_pool_alone_is_steered_by_nobody():
    made = loaded("pipeline: [!Limiter {maximum: 3}, !Pool ]")
    assert isinstance(made.pipeline, Bound)
    assert made.advice == ("there is no controller: nothing decides here",)


@pytest.mark.parametrize(
    "stage, words",
    [
        ("!LinearController", "nothing bounds the demand"),
        ("!RelativeSupplyController", "a multiple of nothing is nothing"),
        (
            "!RelativeSupplyController {low_utilisation: 0.9, high_allocation: 0.9, first: 1}",
            "low_utilisation is 0.9",
        ),
    ],
)
def test_what_is_likely_to_disappoint_is_said(stage, words):
    (found,) = loaded(f"pipeline: [{stage} , !Pool ]").advice
    assert found.startswith(words)


LINEAR = "!LinearController"
BUFFER = "cobald.decorator.buffer.Buffer"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "c.yaml:1: the top of the document is no mapping"),
        ("- 1", "c.yaml:1: the top of the document is no mapping"),
        ("a: [", "c.yaml:1: this is no YAML: "),
        ("logging: {}", "c.yaml: there is no `pipeline`"),
        ("pipeline: []", "there is no `pipeline`"),
        ("pipeline: [!Pool ]\ntardis: {}", "there is a section `tardis` that nothing here reads"),
        (
            f"pipeline:\n- {LINEAR}\n  low: 1\n- !Pool",
            "c.yaml:2: pipeline[0] !LinearController: there is no `low`",
        ),
        (
            f"pipeline:\n- {LINEAR} {{rate: fast}}\n- !Pool",
            "c.yaml:2: pipeline[0] !LinearController: Expected `float`, got `str` - at `$.rate`",
        ),
        (f"pipeline: [{LINEAR} [1, 1, 1, 1, 1], !Pool ]", "5 arguments, of 4 that there are"),
        (f"pipeline: [{LINEAR} 3, !Pool ]", "takes a mapping or a list, not '3'"),
        ("pipeline: [!Nothing , !Pool ]", "there is no tag `!Nothing`"),
        (
            f"pipeline:\n- {{__type__: {BUFFER}, __args__: [1], window: 2}}\n- !Pool",
            "`window` is given twice",
        ),
        ("pipeline: [{__type__: 3}]", "`__type__` is not a dotted name"),
        ("pipeline: [{__type__: a.b, __args__: 3}]", "`__args__` is not a list"),
        ("pipeline: [{__type__: a.b, 3: 3}]", "3 is not the name of an argument"),
        ("pipeline: [{__type__: os.system, command: ls}]", "`os.system` is not one of ours"),
        ("pipeline: [!Pool , !Limiter ]", "Standardiser is no pool"),
        ("pipeline: [3]", "pipeline[0]: int is no pool"),
        ("pipeline: [3, !Pool ]", "int cannot stand above a pool"),
        (f"pipeline: [!Limiter , {LINEAR} , !Pool ]", "only the first of a pipeline decides"),
        ("pipeline: [!Pool {size: 3}]", "unexpected keyword argument 'size'"),
        ("pipeline: [!DemandSwitch [!LinearController , 3], !Pool ]", "come in pairs"),
        (
            "pipeline: [!DemandSwitch [!LinearController , x, !LinearController ], !Pool ]",
            "comes after the demand",
        ),
        ("pipeline: [!WeightedComposite {weight: cost}]", "cannot be weighted by 'cost'"),
        ("pipeline: [!!python/object/apply:os.system [ls]]", "are not read"),
        ("pipeline: [!!python/name:os.system ]", "are not read"),
        ("pipeline: [!!set {a, b}]", "are not read"),
        ("pipeline: &a [*a]", "the document is too deep, or contains itself"),
        ("a: &a {<<: *a}", "the document is too deep, or contains itself"),
        ("a: {<<: 3}", "`<<` takes a mapping"),
        ("a: {[1]: 3}", "a key must be a plain value"),
        ("a: !!int x", "c.yaml:1: "),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, message):
    with pytest.raises(errors.ConfigError) as caught:
        loaded(text)
    assert message in caught.value.message
    assert caught.value.message.count("c.yaml") == 1


def test_a_small_document_cannot_become_a_large_one():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(errors.ConfigError, match="more than 100000 values"):
        loaded("\n".join(lines))
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    with pytest.raises(errors.ConfigError, match=r"`<<` takes|more than 100000 values"):
        loaded("\n".join(lines))
    with pytest.raises(errors.ConfigError, match="is longer than"):
        loaded("#" * 1_000_001)


def test_too_deep_is_too_deep():
    with pytest.raises(errors.ConfigError, match="too deep"):
        loaded("a: " + "[" * 600)


@given(
    st.text()
    | st.builds(
        "a: !!{} '{}'".format,
        st.sampled_from(["bool", "int", "float", "null", "timestamp", "binary", "str", "map"]),
        st.text("0123456789:.-+_abefinostxTZ ", max_size=12),
    )
)
def test_any_text_is_read_or_refused(text):
    try:
        found = read(text, "x")
    except errors.ConfigError:
        return
    assert isinstance(found, dict)


def test_what_cannot_be_imported_is_said(others):
    with pytest.raises(errors.ConfigError, match=r"there is no `others.Missing`"):
        foreign.find("others.Missing", others)
    with pytest.raises(errors.ConfigError, match=r"there is no `nowhere.at.all`"):
        foreign.find("nowhere.at.all", ("nowhere.at.all",))
    with pytest.raises(errors.ConfigError, match="neither decides nor is a pool"):
        foreign.stand(lambda target: 3, (), {})
    with pytest.raises(errors.ConfigError, match="is not one of ours"):
        foreign.find("othersx.Plain", others)


@pytest.mark.parametrize(
    "name", ["os.system", "run", "os", "Plain.__init__.__globals__", "Plain.__subclasses__"]
)
def test_leave_for_a_package_is_none_for_what_it_imports(others, name):
    text = f"pipeline: [!LinearController , {{__type__: others.{name}, __args__: ['true']}}]"
    with pytest.raises(errors.ConfigError, match=rf"`others\.{name}` is not of that package"):
        loaded(text, allow=others)
    with pytest.raises(errors.ConfigError, match="is not of that package"):
        loaded(
            f"pipeline: [!Pool ]\nlogging: {{filters: {{x: {{(): others.{name}}}}}}}", allow=others
        )
    assert foreign.find(f"others.{name}", (f"others.{name}",)) is not None


def test_other_sections_are_handed_back_if_asked_for():
    made = loaded("tardis: {Sites: []}\npipeline: [!Pool ]", sections=("tardis",))
    assert made.sections == {"tardis": {"Sites": []}}


def test_a_file_is_read_and_one_that_is_not_there_is_an_error(tmp_path):
    file = tmp_path / "cobald.yaml"
    file.write_text("pipeline: [!Pool ]")
    assert load_file(str(file), makers=POOL).pipeline.demand == 10
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        load_file(str(tmp_path / "missing.yaml"))


LOGGING = """
pipeline: [!Pool ]
logging:
    version: 1
    formatters:
        json: {(): cobald.monitor.format_json.JsonFormatter, fmt: {host: here}}
        line: {(): cobald.monitor.format_line.LineProtocolFormatter}
        text: {format: '%%(message)s'}
    handlers:
        out: {class: logging.StreamHandler, formatter: json, stream: 'ext://sys.stderr'}
    loggers:
        pool.test: {level: INFO, handlers: [out], propagate: false}
"""


def test_the_section_on_logging_works(capsys):
    section = loaded(LOGGING).logging
    assert section["disable_existing_loggers"] is False
    assert section["formatters"]["json"]["()"] is JsonFormatter
    assert section["formatters"]["line"]["()"] is LineProtocolFormatter
    logging.config.dictConfig(section)
    (handler,) = logging.getLogger("pool.test").handlers
    record = logging.makeLogRecord({"msg": "m %(a)s", "args": {"a": math.inf, "b": Plain}})
    assert handler.format(record).startswith('{"host": "here", "time": "')
    assert '"message": "m inf", "a": null, "b": "<class' in handler.format(record)
    logging.getLogger("pool.test").removeHandler(handler)


@pytest.mark.parametrize(
    "section, message",
    [
        ("3", "`logging` is no mapping"),
        ("{filters: {x: {(): os.system}}}", "`os.system` is not one of ours"),
        ("{handlers: {x: {class: logging.handlers.SocketHandler}}}", "is not one of ours"),
        (
            "{formatters: {x: {class: cobald.monitor.format_json.JsonFormatter}}}",
            r"is made by `\(\)`, not by `class`",
        ),
        ("{handlers: {x: {class: 3}}}", "`class` of `logging` is no name"),
        ("{handlers: {x: {stream: 'ext://os.environ'}}}", "`ext://os.environ` is not one of"),
        ("{handlers: {x: [{stream: 'ext://os.environ'}]}}", "`ext://os.environ` is not one of"),
        ("{handlers: {x: !Thing {}}}", "`!Thing` has no meaning in `logging`"),
    ],
)
def test_logging_makes_nothing_that_was_not_allowed(section, message):
    with pytest.raises(errors.ConfigError, match=message):
        loaded(f"pipeline: [!Pool ]\nlogging: {section}")


def test_classes_of_others_may_log_if_allowed(others):
    text = (
        "pipeline: [!Pool ]\nlogging: {filters: {x: {(): others.Plain}, y: {class: others.Plain}}}"
    )
    found = loaded(text, allow=others).logging
    assert found is not None
    assert found["filters"] == {"x": {"()": Plain}, "y": {"class": "others.Plain"}}


def test_a_line_leaves_out_what_it_cannot_say():
    record = logging.makeLogRecord({"msg": "m", "args": {"a": math.nan, "b": 1.0, "c": "x"}})
    assert LineProtocolFormatter({"c": "y"}).format(record) == "m,c=x b=1.0\n"


def test_an_element_knows_its_tag():
    assert Element("!Limiter", (), {}, 1).tag == "Limiter"
    assert Element("a.b", (), {}, 1).tag == ""
