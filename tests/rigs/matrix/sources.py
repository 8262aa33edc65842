"""The sources of work: each asks for one and the same thing, at a place, in its own way.

The work joins three files to one, says so in its log, and waits for its gate before.
"""

from __future__ import annotations

import importlib.util
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2

from pilotage.client.future import Future
from pilotage.client.sync import Client
from tests.rigs.broker import toml
from tests.rigs.matrix.bed import FAR, PARAMETERS, POOL, Bed, braced

#: What joins a job to a place: keys of rules and of jobs, and options.
_WHERE: dict[str, dict[str, str]] = {
    "here": {"requirements": "site == 'local'"},
    "pilot": {"requirements": f"site == '{FAR}'"},
    "slurm": {"site": "slurm", "via": "batch"},
    "ssh": {"site": "ssh", "via": "batch"},
    "edge": {},
    "pool": {"requirements": f"pool == '{POOL}'"},
    "dialled": {},
    "htcondor": {"site": "htcondor", "via": "batch"},
    "htcondor-edge": {},
}
#: How inputs are called in the folder of a step or a message's job.
_NAMES = ("one", "two", "three")
#: What a step leaves.
_JOINED = "out/joined"


class Work:
    """One piece of work: before it was asked for, and after."""

    def __init__(self, bed: Bed, place: str, name: str) -> None:
        self.bed = bed
        self.place = place
        self.name = name
        self.at_edge = place in bed.agents
        self.where = dict(_WHERE[place])
        if self.at_edge:
            self.where["site"] = bed.agents[place].site
        #: Returns the number of the job that does it, and of the workflow that it is; 0 if there
        #: is none yet.
        self.job: Callable[[], int] = lambda: 0
        self.flow: Callable[[], int] = lambda: 0
        #: Returns what came home; empty if nothing did.
        self.home: Callable[[], str] = lambda: text_of(bed.root / self.output)

    # -- what it is about ------------------------------------------------------------------------

    @property
    def parts(self) -> list[str]:
        """The texts of its inputs."""
        return [f"{self.name} {number}\n" for number in range(3)]

    @property
    def inputs(self) -> list[str]:
        """Its inputs, below the project."""
        return [f"in/{self.name}.{number}" for number in range(3)]

    @property
    def output(self) -> str:
        """Its output, below the project."""
        return f"out/{self.name}"

    def write_inputs(self) -> None:
        """Put its inputs where they belong."""
        for file, text in zip(self.inputs, self.parts, strict=True):
            put(self.bed.root / file, text)

    # -- as sources write it ---------------------------------------------------------------------

    def recipe(self, name: str, target: str, files: Sequence[str]) -> dict[str, Any]:
        """Write the keys of a rule that does it; all are templates."""
        if self.at_edge:
            return {"app": "work", "params": parameters(name, target, files), **self.where}
        words = ["sh", "-c", braced(self.bed.script), "sh", name, target, *files]
        return {"run": words, **self.where}

    def below(self, *files: str) -> list[str]:
        """Write files of the project as a template; at an edge site they have the same names."""
        return list(files) if self.at_edge else [f"{{base}}/{one}" for one in files]

    def spec(self) -> dict[str, Any]:
        """Write the definition of a job."""
        (target,) = self.below(self.output)
        made = self.recipe(self.name, target, self.below(*self.inputs))
        app, words = made.pop("app", ""), made.pop("run", [])
        kind = {"kind": "app", "app": app} if app else {"kind": "command", "argv": words}
        files = {"inputs": self.inputs, "outputs": {"out": self.output}}
        return {"name": self.name, "recipe": kind, **files, **made}

    def definition(self) -> dict[str, Any]:
        """Write a workflow with one step; name and inputs are its parameters."""
        made = self.recipe("{name}", _JOINED, _NAMES)
        made.pop("via", None)
        if self.at_edge:
            made |= {"application": made.pop("app"), "parameters": made.pop("params")}
        inputs = [{"from": f"{{{one}}}", "as": one} for one in _NAMES]
        return {
            "name": f"flow-{self.place}", "to": "home", "required": ["name", *_NAMES],
            "step": {"work": {"inputs": inputs, "outputs": [_JOINED], **made}},
            "outputs": {"out": f"work/{_JOINED}"},
        }  # fmt: skip


def parameters(name: str, target: str, files: Sequence[str]) -> dict[str, str]:
    """Write what the application takes."""
    return dict(zip(PARAMETERS, (name, target, *files), strict=True))


def prepare(bed: Bed) -> None:
    """Write the rules and workflows of all places."""
    rules: dict[str, Any] = {}
    for place in filter(bed.has, _WHERE):
        any_ = Work(bed, place, "")
        side = ["in/{stem}.1", "in/{stem}.2"]
        (target,) = any_.below("out/{stem}")
        rules[f"file-{place}"] = {
            "files": f"drop/{place}/*.txt", "inputs": side, "outputs": {"out": "out/{stem}"},
            **any_.recipe("{stem}", target, ["{path}", *any_.below(*side)]),
        }  # fmt: skip
        (bed.root / "rules" / f"{place}.flow.toml").write_text(_flow(any_.definition()))
        given = ("{stem}", "{path}", *(f"{{base}}/{one}" for one in side))
        rules[f"flow-{place}"] = {
            "files": f"start/{place}/*.txt", "flow": f"{place}.flow.toml",
            "params": dict(zip(("name", *_NAMES), given, strict=True)),
        }  # fmt: skip
    put(bed.root / "rules" / "matrix.toml", toml.write({"rule": rules}))


def _flow(flow: dict[str, Any]) -> str:
    """Write the file of a workflow: tables in lists are in line."""
    step = dict(flow["step"]["work"])
    tables = (f'{{ from = "{one["from"]}", as = "{one["as"]}" }}' for one in step.pop("inputs"))
    inputs = f"inputs = [{', '.join(tables)}]\n"
    top = toml.write({key: value for key, value in flow.items() if isinstance(value, str | list)})
    plain = {key: value for key, value in step.items() if not isinstance(value, dict)}
    rest_ = {key: value for key, value in step.items() if isinstance(value, dict)}
    below = "".join(toml.write(value, "step", "work", key) for key, value in rest_.items())
    middle = toml.write(plain, "step", "work")
    return f"{top}{middle}{inputs}{below}{toml.write(flow['outputs'], 'outputs')}"


# -- the sources -----------------------------------------------------------------------------------


def _by_file(work: Work) -> None:
    """Have a rule on a file fire."""
    work.write_inputs()
    put(work.bed.root / "drop" / work.place / f"{work.name}.txt", work.parts[0])
    work.job = lambda: _triggered(work, "file")


def _by_timer(work: Work) -> None:
    """Have a rule on a timer fire once: it ticks soon, and goes when it has."""
    work.write_inputs()
    tick = int(time.time()) + 2
    files = {"inputs": work.inputs, "outputs": {"out": work.output}}
    (target,) = work.below(work.output)
    made = work.recipe(work.name, target, work.below(*work.inputs))
    # Should the rule be in force only after that tick, there is another.
    rule = {"every": tick / round(tick / 45), **files, **made}
    book = work.bed.root / "rules" / f"{work.name}.toml"
    put(book, toml.write({"rule": {work.name: rule}}))

    def job() -> int:
        found = _first(work.bed, "SELECT id FROM job WHERE name = ?", work.name)
        if found:
            book.unlink(missing_ok=True)
        return found

    work.job = job


def _by_submit(work: Work) -> None:
    """Submit by the command, in the folder of the files."""
    work.write_inputs()
    folder = work.bed.root / "in"
    if work.at_edge:
        put(folder / f"{work.name}.json", json.dumps(work.spec()))
        words = [f"{work.name}.json"]
    else:
        names = [Path(one).name for one in work.inputs]
        options = {"name": work.name, "output": f"../{work.output}", **work.where}
        words = [word for key, value in options.items() for word in (f"--{key}", value)]
        words += [word for one in names for word in ("--input", one)]
        words += ["--", "sh", "-c", work.bed.script, "sh", work.name, f"../{work.output}", *names]
    said = work.bed.say("submit", "--json", *words, cwd=folder)
    assert said.startswith("{"), said
    number = int(json.loads(said.splitlines()[0])["id"])
    work.job = lambda: number


def _by_rest(work: Work) -> None:
    """Submit by a request."""
    work.write_inputs()
    url, token, ca = work.bed.address()
    answer = httpx2.post(
        f"{url}/api/v1/jobs", json={"jobs": [{"spec": work.spec()}]},
        verify=ssl.create_default_context(cafile=ca), headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert answer.status_code < 300, answer.text
    (number,) = answer.json()["ids"]
    work.job = lambda: int(number)


def _by_values(work: Work) -> None:
    """Call a function with values; what it returns is the output."""
    function = _functions().join
    future = _options(work).submit(function, str(work.bed.yard), work.name, work.parts)
    _await(work, future)
    work.home = lambda: str(future.result()) if _succeeded(future) else ""


def _by_files(work: Work) -> None:
    """Call a function that reads and writes files."""
    work.write_inputs()
    client, function = _options(work, **_files(work)), _functions().join_files
    given = (str(work.bed.yard), work.name, work.output, work.inputs)
    _await(work, client.submit(function, *given))


def _by_program(work: Work) -> None:
    """Run a program from Python."""
    work.write_inputs()
    words = ["sh", "-c", work.bed.script, "sh", work.name, work.output, *work.inputs]
    _await(work, _options(work, **_files(work)).submit(words))


def _files(work: Work) -> dict[str, Any]:
    return {"inputs": work.inputs, "outputs": [work.output]}


def _by_step(work: Work) -> None:
    """Start a workflow of one step."""
    work.write_inputs()
    given = dict(zip(("name", *_NAMES), (work.name, *work.inputs), strict=True))
    run = work.bed.client().flow(work.definition(), given, key=work.name)
    _follow(work, lambda: run.number)


def _by_flow(work: Work) -> None:
    """Have a rule start a workflow."""
    work.write_inputs()
    put(work.bed.root / "start" / work.place / f"{work.name}.txt", work.parts[0])
    query = "SELECT substr(starter, 6) FROM attempt WHERE starter LIKE 'flow:%' AND job = ?"
    _follow(work, lambda: _first(work.bed, query, _triggered(work, "flow")))


def _by_message(work: Work) -> None:
    """Send a message to the hub; one that names no site of its own runs where there is room."""
    for name, text in zip(_NAMES, work.parts, strict=True):
        put(work.bed.web / "in" / work.name / name, text)
    (work.bed.web / "out").mkdir(exist_ok=True)
    inputs = [{"url": f"{work.bed.url}/in/{work.name}/{one}", "path": one} for one in _NAMES]
    body = {
        "v": 1, "kind": "job", "site": work.where.get("site", "any"), "application": "work",
        "name": work.name, "key": work.name, "parameters": parameters(work.name, _JOINED, _NAMES),
        "inputs": inputs, "outputs": [{"path": _JOINED, "url": f"{work.bed.url}/out/{work.name}/"}],
    }  # fmt: skip
    work.bed.alice.post("job.hub", body)
    _follow(work, lambda: _first(work.bed, "SELECT id FROM flow WHERE name = ?", work.name))
    work.home = lambda: _joined(work, work.bed.web / "out" / work.name)


_SOURCES: dict[str, Callable[[Work], None]] = {
    "file": _by_file, "timer": _by_timer, "submit": _by_submit, "values": _by_values,
    "files": _by_files, "program": _by_program, "step": _by_step, "rest": _by_rest,
    "message": _by_message, "flow": _by_flow,
}  # fmt: skip


def ask(bed: Bed, source: str, place: str, name: str) -> Work:
    """Ask for a work; raise if that is refused."""
    work = Work(bed, place, name)
    _SOURCES[source](work)
    return work


# -- finding what was begun ------------------------------------------------------------------------


def put(file: Path, text: str) -> None:
    """Write a file, at once and whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}")
    part.write_text(text)
    part.rename(file)


def text_of(file: Path) -> str:
    """Read a file; empty if there is none."""
    return file.read_text() if file.exists() else ""


def _first(bed: Bed, query: str, *values: object) -> int:
    rows = bed.query(query, *values)
    return int(rows[0][0]) if rows else 0


def _triggered(work: Work, rule: str) -> int:
    """Find the job of a rule by its trigger."""
    query = "SELECT id FROM job WHERE name = ? AND binding LIKE ?"
    return _first(work.bed, query, f"{rule}-{work.place}", f"%/{work.name}.txt%")


def _follow(work: Work, flow: Callable[[], int]) -> None:
    """Find the job of the only step of a workflow, and what the workflow leaves."""
    query = "SELECT id FROM job WHERE tag = ? ORDER BY id DESC"
    work.flow = flow
    work.job = lambda: _first(work.bed, query, f"flow:{flow()}") if flow() else 0
    work.home = lambda: _joined(work, work.bed.root / "home")


def _joined(work: Work, folder: Path) -> str:
    """Return the output of a work among those of all runs."""
    found = [one.read_text() for one in folder.rglob(Path(_JOINED).name)]
    return next((text for text in found if text.startswith(work.parts[0])), "")


def _options(work: Work, **more: Any) -> Client:
    return work.bed.client().options(name=work.name, **work.where, **more)


def _await(work: Work, future: Future[Any]) -> None:
    work.job = lambda: future.job or 0


def _succeeded(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _functions() -> ModuleType:
    """Load the functions as those of a file that is in no package: it travels as it is."""
    name = "matrix_functions"
    if name not in sys.modules:
        file = Path(__file__).with_name("functions.py")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
