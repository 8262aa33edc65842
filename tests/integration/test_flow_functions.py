"""Steps that are Python functions: what one returns is its result, for conditions and lists."""

from __future__ import annotations

from pathlib import Path

from pilotage import Flow
from pilotage.flow import moves, read, records
from pilotage.flow.model import NewFlow
from pilotage.flow.moves import outcome
from tests.rigs.project.project import Rig

FLOW = """
name = "functions"

[params]
most = 3

[step.parts]
python = "steps.py"
function = "parts"
parameters = { most = "{most}" }

[step.square]
each = "{parts.result.numbers}"
python = "steps.py:square"
parameters = { number = "{item}" }

[step.sum]
when = "parts.result.count > 2"
python = "steps.py:add"
parameters = { numbers = "{square.result}" }

[step.never]
when = "parts.result.count > 3"
python = "steps.py:square"
parameters = { number = 1 }

[outputs]
sum = "sum"
"""
STEPS = """
def parts(most: int) -> dict:
    return {"numbers": list(range(1, most + 1)), "count": most}


def square(number: int) -> int:
    return number * number


def add(numbers: list) -> int:
    return sum(numbers)
"""


def submit(rig: Rig, new: NewFlow) -> int:
    with rig.project() as project, project.db.transaction() as db:
        return moves.submit(db, new, project.clock.now())


async def test_functions_hand_on_what_they_return(tmp_path: Path):
    rig = Rig(tmp_path)
    (tmp_path / "steps.py").write_text(STEPS)
    number = submit(rig, NewFlow(flow=read.read(FLOW, base=tmp_path), key="k", owner="me"))
    await rig.finish()
    with rig.project() as project:
        assert records.flow(project.db, number).state == "done"
        assert outcome(project.db, number) == {"sum": 14}
        states = {one.name: one.state for one in records.steps(project.db, number)}
    assert states["never"] == "skipped"


def largest(numbers: list[int]) -> int:
    return max(numbers)


def double(number: int) -> int:
    return number * 2


async def test_functions_of_a_program_are_steps(tmp_path: Path):
    rig = Rig(tmp_path)
    flow = Flow("own", params={"numbers": [3, 5, 4]})
    found = flow.step("largest", python=largest, parameters={"numbers": "{numbers}"})
    twice = flow.step("double", python=double, parameters={"number": found.result()})
    flow.output("twice", twice)
    number = submit(rig, NewFlow(flow=flow.definition(), key="k", owner="me"))
    await rig.finish()
    with rig.project() as project:
        assert outcome(project.db, number) == {"twice": 10}
