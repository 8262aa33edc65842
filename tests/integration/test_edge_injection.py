"""Texts that try to be more than text, in every field of every message, all in one go.

Each is refused with a sentence, or it is what it was given for: one argument, one line or one name,
byte for byte. Nothing else happens.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pilotage.bus.wire import BAD
from testbed.rabbit import Rabbit
from tests.corpus.injection import OPTIONS, SHELL, TEMPLATES, URLS, VALUES
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import FINAL, Edge
from tests.rigs.cluster.web import Web, serving

pytestmark = pytest.mark.slow

Made = dict[str, Any]
#: Arguments of one job.
MANY = 12
TEXT = {"kind": "text", "pattern": ".*", "longest": 4000, "dash": True, "required": False}
FILE = {"kind": "path", "longest": 900, "required": False}
#: Each field gets one text of so many; tests of units have all of them.
SHARE = 8
#: Whose jobs wait, so that what hundreds of them say costs no process.
WAITS = "bob"

#: Fields of a job in which nearly nothing of it is allowed.
OURS: dict[str, Callable[[str], Made]] = {
    "v": lambda text: {"v": text},
    "kind": lambda text: {"kind": text},
    "site": lambda text: {"site": text},
    "application": lambda text: {"application": text},
    "attempt": lambda text: {"attempt": text},
    "parameter": lambda text: {"parameters": {text: "x"}},
    "label": lambda text: {"parameters": {"label": text}},
    "config": lambda text: {"config": text},
    "config_file": lambda text: {"config_file": text},
    "variable": lambda text: {"env": {text: "x"}},
    "env": lambda text: {"env": {"LD_PRELOAD": text}},
    "memory": lambda text: {"resources": {"memory": text}},
    "resource": lambda text: {"resources": {text: 1}},
    "nodes": lambda text: {"nodes": text},
    "queue": lambda text: {"queue": text},
    "project": lambda text: {"project": text},
    "wall_time": lambda text: {"wall_time": text},
    "option": lambda text: {"options": [text]},
    "input.url": lambda text: {"inputs": [{"url": text}]},
    "input.path": lambda text: {"inputs": [{"url": "https://x.example/x", "path": text}]},
    "input.sha256": lambda text: {"inputs": [{"url": "https://x.example/", "sha256": text}]},
    "output.url": lambda text: {"outputs": [{"path": "x", "url": text}]},
    "output.path": lambda text: {"outputs": [{"path": text, "url": "https://x.example/x"}]},
    "reply": lambda text: {"reply": text},
    "speech": lambda text: {"speech": text},
    "job_id": lambda text: {"job_id": text},
    "a field": lambda text: {text: "x"},
}
#: Those of Balsam's definition.
BALSAM: dict[str, Callable[[str], Made]] = {
    name: lambda text, name=name: {name: text}  # type: ignore[misc]
    for name in (
        "site", "application", "argo_job_id", "job_id", "queue", "project", "wall_time_minutes",
        "num_nodes", "processes_per_node", "config_file", "input_url", "output_url", "state",
        "scheduler_id", "working_directory", "owner",
    )
}  # fmt: skip
#: Fields in which nearly all of it is allowed.
FREE: dict[str, Callable[[str], Made]] = {
    "key": lambda text: {"key": text},
    "name": lambda text: {"name": text},
    "description": lambda text: {"description": text},
}
CONTROL: dict[str, Callable[[str], Made]] = {
    "verb": lambda text: {"verb": text},
    "site": lambda text: {"site": text},
    "keys": lambda text: {"keys": [text]},
    "jobs": lambda text: {"jobs": [text]},
    "reason": lambda text: {"reason": text},
    "reply": lambda text: {"reply": text},
}


class Storm(NamedTuple):
    """What was sent, and what it was sent to."""

    edge: Edge
    web: Web
    canary: Path
    #: Where programs leave their arguments.
    dumps: Path
    #: By the digest of each body the field and the text.
    sent: dict[str, tuple[str, str]]
    #: By key: what the arguments must be.
    argv: dict[str, list[str]]
    controls: int


class Sender:
    """Makes messages and sends them, some hundreds at a time."""

    def __init__(self, edge: Edge, canary: Path) -> None:
        self.edge = edge
        self._canary = canary
        self.sent: dict[str, tuple[str, str]] = {}
        self.controls = 0
        self._fields = 0

    def texts(self, some: Iterable[str] = VALUES) -> list[str]:
        """Return texts that would leave something at a known place."""
        return [text.replace("PWNED", f"{self._canary}/PWNED") for text in some]

    def job(self, field: str, text: str, made: Made, user: str = edge_agent.USER) -> None:
        self._many([(field, text, made)], user)

    def field(self, name: str, make: Callable[[str], Made], base: Callable[[], Made],
              user: str = edge_agent.USER) -> None:  # fmt: skip
        """Send a job with each of some texts in one field."""
        self._many([(name, text, base() | make(text)) for text in self.texts(self._some())], user)

    def control(self, make: Callable[[str], Made]) -> None:
        """Send a control with each of some texts in one field."""
        head = {"v": 1, "kind": "control", "site": self.edge.site, "verb": "cancel", "keys": ["k"]}
        bodies = [json.dumps(head | make(text)).encode() for text in self.texts(self._some())]
        self.controls += len(bodies)
        self.edge.send(*bodies, topic=f"control.{self.edge.site}")

    def _some(self) -> Sequence[str]:
        self._fields += 1
        return VALUES[self._fields % SHARE :: SHARE]

    def _many(self, those: Sequence[tuple[str, str, Made]], user: str) -> None:
        bodies = []
        for field, text, made in those:
            body = json.dumps(made).encode()
            digest = hashlib.sha256(body).hexdigest()
            assert digest not in self.sent
            self.sent[digest] = field, text
            bodies.append(body)
        self.edge.send(*bodies, user=user)


def offer(edge: Edge, web: Web, dumps: Path) -> None:
    """Offer programs that write down what they are given."""
    dump = f"for one; do printf '%s\\0' \"$one\"; done > '{dumps}/'$PILOTAGE_JOB.part\n"
    dump += f"env -0 > '{dumps}/'$PILOTAGE_JOB.env\n"
    dump += f"mv '{dumps}/'$PILOTAGE_JOB.part '{dumps}/'$PILOTAGE_JOB.argv"
    texts, paths = [f"t{at}" for at in range(MANY)], [f"p{at}" for at in range(MANY)]
    env = [f"HOSTILE_{at}" for at in range(MANY)]
    argv = [f"{{{one}}}" for one in texts]
    edge.programs.add("dump", dump, argv=argv, parameter=dict.fromkeys(texts, TEXT), env_allow=env)
    edge.programs.add("middle", dump, argv=[f"a{one}b" for one in argv],
                      parameter=dict.fromkeys(texts, TEXT))  # fmt: skip
    edge.programs.add("paths", dump, argv=[f"{{{one}}}" for one in paths],
                      parameter=dict.fromkeys(paths, FILE))  # fmt: skip
    keys = {"argv": argv, "parameter": dict.fromkeys(texts, TEXT)}
    edge.programs.add("keys", dump, config={"format": "keys"}, **keys)
    cat = Path("/usr/bin/cat").resolve()
    pins = {str(cat): hashlib.sha256(cat.read_bytes()).hexdigest()}
    read = {"format": "json", "program": [str(cat), "{file}"]}
    edge.programs.add("parsed", dump, config=read, pins=pins, **keys)
    words = {"format": "words", "word": TEXT, "most": 400}
    edge.programs.add("words", dump, argv=["{*}"], config=words)
    strict = {"format": "words", "word": {"kind": "text", "pattern": "[a-z]+"}}
    edge.programs.add("strict", dump, argv=["{*}"], config=strict)
    staging = {
        "protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"], "private": ["127.0.0.0/8"],
    }  # fmt: skip
    found = f"find . -type f -print0 | sort -z > '{dumps}/'$PILOTAGE_JOB.argv"
    edge.programs.add("files", found, staging=staging)
    edge.programs.add("leaks", "ln -s /etc/passwd leak; ln -s /etc folder", staging=staging)


def chunks(texts: Sequence[str]) -> Iterator[dict[int, str]]:
    for at in range(0, len(texts), MANY):
        yield dict(enumerate(texts[at : at + MANY]))


def allowed(texts: Iterable[str]) -> list[str]:
    """Return those that may be given to a program."""
    return [text for text in texts if not BAD.search(text) and len(text) < 4000]


class Arguments:
    """Jobs whose arguments are to be exactly what they were given."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._edge = sender.edge
        self.argv: dict[str, list[str]] = {}

    def send(self, application: str, argv: list[str], **fields: Any) -> None:
        made = self._edge.job(application, **fields)
        self.argv[made["key"]] = argv
        self._sender.job(application, "", made)

    def all(self) -> None:
        texts = allowed(self._sender.texts())
        for some in chunks(texts):
            given = {f"t{at}": text for at, text in some.items()}
            env = {f"HOSTILE_{at}": text for at, text in some.items()}
            self.send("dump", [*some.values()], parameters=given, env=env,
                      name=some[0][:200], description=some[0])  # fmt: skip
        few = allowed(self._sender.texts([*SHELL, *TEMPLATES]))
        for some in chunks(few):
            given = {f"t{at}": text for at, text in some.items()}
            self.send("middle", [f"a{text}b" for text in some.values()], parameters=given)
            self.send("parsed", [*some.values()], config=json.dumps(given))
        bare = [text for text in few if text == text.strip() and text]
        for some in chunks(bare):
            lines = "".join(f"t{at} = {text}\n" for at, text in some.items())
            self.send("keys", [*some.values()], config=lines)
        self.send("words", texts, config=shlex.join(texts))
        for some in chunks(names(self._sender.texts([*OPTIONS, *SHELL, *TEMPLATES]))):
            given = {f"p{at}": text for at, text in some.items()}
            self.send("paths", [f"./{text}" for text in some.values()], parameters=given)


def names(texts: Iterable[str]) -> list[str]:
    """Return those that may be names of files."""
    return [
        text for text in allowed(texts)
        if not any(part in ("", ".", "..") for part in text.split("/"))
        and not text.startswith("~") and "\\" not in text and len(text) < 200
    ]  # fmt: skip


def staged(sender: Sender, arguments: Arguments, web: Web) -> None:
    """Send a job whose files are called like options and commands, and one that would leak."""
    (web.root / "in").mkdir()
    (web.root / "out").mkdir()
    (web.root / "in" / "one").write_text("hello")
    # In one folder each: what is called the same but for a `/` would be in the way of another.
    paths = [f"{at}/{text}" for at, text in enumerate(names(["-o", "--help", *SHELL, *TEMPLATES]))]
    arguments.send(
        "files", sorted(f"./{path}" for path in paths),
        inputs=[{"url": f"{web.url}/in/one", "path": path} for path in paths],
        outputs=[{"path": "", "url": f"{web.url}/out/"}],
    )  # fmt: skip
    for path in ("leak", "folder", "folder/passwd"):
        made = sender.edge.job("leaks", outputs=[{"path": path, "url": f"{web.url}/{path}"}])
        sender.job("leaks", path, made)
    for url in URLS:
        sender.job("url", url, sender.edge.job("files", inputs=[{"url": url, "path": "x"}]))


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Storm]:
    """Send everything, and wait until it has been dealt with."""
    root = tmp_path_factory.mktemp("injection")
    canary, dumps = root / "canary", root / "dumps"
    for folder in (canary, dumps, root / "data"):
        folder.mkdir()
    limits = {"users": {WAITS: 1}}
    with (
        serving(root / "data") as web,
        edge_agent.at_local(root / "e", rabbit, settings={"limits": limits}) as edge,
    ):
        offer(edge, web, dumps)
        with edge.up():
            sender = Sender(edge, canary)
            arguments = Arguments(sender)
            sender.job("gate", "", edge.job("gate"), WAITS)
            for name, make in OURS.items():
                sender.field(name, make, lambda: edge.job("count"))
            for name, make in BALSAM.items():
                number = itertools.count(1)
                sender.field(
                    f"balsam {name}", make,
                    lambda name=name, number=number: {  # type: ignore[misc]
                        "name": f"{name} {next(number)}", "application": "count",
                    },
                )  # fmt: skip
            for name, make in FREE.items():
                sender.field(name, make, lambda: edge.job("count"), WAITS)
            for text in sender.texts(SHELL):
                made = {"name": text, "description": text, "application": "strict"}
                sender.job("balsam free", text, made | {"scheduler_config": text}, WAITS)
                sender.job("text of a config", text, edge.job("strict", config=text))
            arguments.all()
            staged(sender, arguments, web)
            for make in CONTROL.values():
                sender.control(make)
            yield settled(sender, arguments, web, canary, dumps)


def settled(sender: Sender, arguments: Arguments, web: Web, canary: Path, dumps: Path) -> Storm:
    """Wait until all that was sent is answered, and has come to an end."""
    edge = sender.edge
    edge.control("query", reply="status.storm")

    def all_answered() -> bool:
        [(jobs,)] = edge.query("SELECT count(*) FROM edge_job")
        return int(jobs) + len(refused(edge) & set(sender.sent)) == len(sender.sent)

    edge.wait(all_answered)
    edge.wait(lambda: edge.raw("status.storm"))
    waiting = [job for (job,) in edge.query("SELECT job FROM edge_job WHERE user = ?", WAITS)]
    edge.control("cancel", jobs=waiting, user=WAITS)
    edge.wait(lambda: all(job.state.value in FINAL for job in edge.jobs().values()))
    edge.wait(lambda: edge.query("SELECT count(*) FROM edge_outbox") == [(0,)])
    return Storm(edge, web, canary, dumps, sender.sent, arguments.argv, sender.controls)


def refused(edge: Edge) -> set[str]:
    return {one.said["sha256"] for one in edge.raw(f"refused.{edge.site}")}


def ended(edge: Edge, application: str) -> list[str]:
    """Return the states of all jobs of an application."""
    asked = "SELECT job.state FROM job JOIN edge_job ON job.id = job WHERE application = ?"
    return [state for (state,) in edge.query(asked, application)]


def test_each_message_was_answered_once(storm: Storm):
    edge = storm.edge
    told = [one.said["sha256"] for one in edge.raw(f"refused.{edge.site}")]
    # What a busy broker did not confirm in time is said once more.
    assert len(told) == len(set(told)) or "was not taken" in edge.said
    [(jobs,)] = edge.query("SELECT count(*) FROM edge_job")
    assert jobs + len(set(told) & set(storm.sent)) == len(storm.sent) > 1000
    # Of controls, those that could be read had nothing to do.
    assert 100 < len(set(told) - set(storm.sent)) < storm.controls
    [answer] = [one.said for one in edge.raw("status.storm")]
    assert (answer["ok"], answer["draining"]) == (True, False)
    unsaid = [
        one.said for one in edge.raw(f"refused.{edge.site}") if not one.said["reason"]["text"]
    ]
    assert unsaid == []


def test_nothing_ran_that_the_site_does_not_offer(storm: Storm):
    invariants.i6_nothing_else_ran(storm.canary)
    invariants.i1_started_once(storm.edge)
    offered = {one.stem for one in (storm.edge.root / "apps").glob("*.toml")}
    assert {name for (name,) in storm.edge.query("SELECT application FROM edge_job")} <= offered
    assert [*storm.edge.root.rglob("PWNED"), *Path.cwd().glob("PWNED")] == []


def test_whatever_a_program_is_given_it_gets_byte_for_byte(storm: Storm):
    edge = storm.edge
    numbers = invariants.numbers_of(edge, storm.argv)
    assert set(edge.states(storm.argv).values()) == {"done"}, edge.told()
    for key, number in numbers.items():
        found = (storm.dumps / f"{number}.argv").read_bytes()
        assert found == b"".join(one.encode() + b"\0" for one in storm.argv[key]), number
    invariants.holds(edge, storm.argv)


def test_so_does_its_environment(storm: Storm):
    edge = storm.edge
    numbers = invariants.numbers_of(edge, storm.argv)
    asked = "SELECT job FROM edge_job WHERE application = 'dump'"
    mine = {job for (job,) in edge.query(asked)}
    for key, number in numbers.items():
        if number not in mine:
            continue
        found = (storm.dumps / f"{number}.env").read_bytes().split(b"\0")
        for at, text in enumerate(storm.argv[key]):
            assert f"HOSTILE_{at}={text}".encode() in found


def test_files_are_called_what_they_were_to_be_called(storm: Storm):
    out = storm.web.root / "out"
    [paths] = [argv for key, argv in storm.argv.items() if argv and argv[0].startswith("./0/")]
    assert {f"./{one.relative_to(out)}" for one in out.rglob("*") if one.is_file()} >= set(paths)
    assert all((out / path).read_text() == "hello" for path in paths)


def test_links_lead_nowhere(storm: Storm):
    secret = Path("/etc/passwd").read_bytes()
    sent = [one for one in storm.web.root.rglob("*") if one.is_file()]
    assert [one for one in sent if secret in one.read_bytes()] == []
    assert not (storm.web.root / "folder").exists()


def test_no_address_is_asked_that_was_not_allowed(storm: Storm):
    edge = storm.edge
    digests = {digest for digest, (field, _) in storm.sent.items() if field == "url"}
    assert len(digests) == len(URLS)
    assert digests <= refused(edge)


def test_a_config_that_says_more_than_it_may_fails_before_anything_runs(storm: Storm):
    edge = storm.edge
    asked = "SELECT job FROM edge_job WHERE application = 'strict' AND user = ?"
    jobs = {job for (job,) in edge.query(asked, edge_agent.USER)}
    started = {one.job for one in edge.programs.starts()}
    assert jobs
    known = edge.jobs()
    assert {known[job].state.value for job in jobs - started} <= {"failed"}
    for job in jobs & started:
        [words] = [(storm.dumps / f"{job}.argv").read_bytes().split(b"\0")[:-1]]
        assert all(word.isalpha() and word.islower() for word in words)


def test_the_agent_is_well_and_nothing_is_left(storm: Storm):
    edge = storm.edge
    key = edge.post("count")
    edge.wait_ended(key)
    invariants.holds(edge, [key])
    [(answer,)] = edge.query("PRAGMA integrity_check")
    assert answer == "ok"
    edge.wait(lambda: strangers(edge) == [])
    assert edge.programs.running() == []


def strangers(edge: Edge) -> list[str]:
    """Return the command lines of processes of the site that are not the agent's own."""
    found = []
    for one in Path("/proc").iterdir():
        if not one.name.isdigit() or int(one.name) in (os.getpid(), edge.process.pid):
            continue
        try:
            words = (one / "cmdline").read_bytes()
        except OSError:
            continue
        # The agent's own hand at the batch system is there as long as the agent is.
        if os.fsencode(edge.root) in words and b"\0hand\0" not in words:
            found.append(os.fsdecode(words))
    return found
