"""One agent through all that a broker and papers can do to it, in one process.

What was promised holds all the same: no message is lost, no job runs twice, all is said, and the
agent says what is wrong in the meantime.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pilotage.agent import status
from pilotage.bus.amqp.link import tls_context
from pilotage.bus.amqp.model import Broker
from testbed.certificates import Authority
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import AGENT, PATIENCE, Edge

pytestmark = pytest.mark.slow
#: Seconds of the agent's signs of life at the broker, and how much later a busy machine may be.
HEARTBEAT_S, LATE_S = 2, 60


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Edge]:
    """Serve a site to all of these tests."""
    root = tmp_path_factory.mktemp("outage")
    bus = {"heartbeat": HEARTBEAT_S, "retry": 0.5, "replies": ["status.**", "quiet.**"]}
    with edge_agent.at_local(root / "e", rabbit, settings={"bus": bus}) as one:
        one.driven = True
        with one.up():
            # Whoever sends later is connected already.
            first = one.post("count")
            one.wait_ended(first)
            yield one


@pytest.fixture(autouse=True)
def well(edge: Edge) -> Iterator[None]:
    """Begin each test with all in order, and end it in the same process."""
    process = edge.process
    edge.proxy.well()
    wait_trouble(edge, lambda one: one == "")
    edge.programs.gate.unlink(missing_ok=True)
    yield
    edge.programs.gate.touch()
    assert edge.process is process
    assert process.poll() is None, edge.told()


def trouble(edge: Edge) -> str:
    """Return what the agent says of its broker."""
    (broker,) = status.read(edge.root / ".pilotage").carriers
    return broker.trouble


def wait_trouble(edge: Edge, words: Callable[[str], object]) -> None:
    """Wait until the agent says something of its broker; it does so every other second."""
    edge.wait(lambda: words(trouble(edge)), passing=1.0)


def serves(edge: Edge) -> None:
    """Require that jobs come and go."""
    key = edge.post("count")
    edge.wait_ended(key)
    invariants.holds(edge, [key])


def begin(edge: Edge, count: int) -> list[str]:
    """Have jobs run that wait, no more than there are cores."""
    before = len(edge.programs.starts())
    keys = edge.post_many("gate", count)
    edge.wait(lambda: len(edge.programs.starts()) == before + count)
    for key in keys:
        edge.wait_state(key, "running")
    return keys


def over(edge: Edge, keys: list[str]) -> bool:
    """Say whether jobs are done as the agent itself knows."""
    asked = "SELECT job.state FROM job JOIN edge_job ON job.id = job WHERE token = ?"
    return all(edge.query(asked, key) == [("done",)] for key in keys)


# -- it goes and comes ---------------------------------------------------------------------------


def test_it_is_stopped_and_started_at_once(edge: Edge):
    running = begin(edge, 1)
    edge.rabbit.stop()
    edge.rabbit.start()
    later = edge.post_many("count", 3)
    edge.programs.gate.touch()
    edge.wait_ended(*running, *later)
    invariants.holds(edge, [*running, *later])


def test_it_is_killed_with_messages_on_their_way(edge: Edge):
    running = begin(edge, 1)
    keys = edge.post_many("count", 20)
    edge.programs.gate.touch()
    edge.rabbit.kill()
    edge.rabbit.start()
    edge.wait_ended(*running, *keys)
    invariants.holds(edge, [*running, *keys])
    assert len(set(invariants.numbers_of(edge, keys).values())) == len(keys)


def test_it_is_away_for_a_while(edge: Edge):
    """Jobs go on and end meanwhile, and all of it is said afterwards, in order; others come."""
    running = begin(edge, 1)
    edge.rabbit.stop()
    try:
        wait_trouble(edge, lambda one: one != "")
        edge.programs.gate.touch()
        edge.wait(lambda: over(edge, running))
        [(waiting,)] = edge.query("SELECT count(*) FROM edge_outbox")
        assert waiting >= len(running)
        assert [edge.end(key) for key in running] == [None] * len(running)
    finally:
        edge.rabbit.start()
    later = edge.post_many("count", 3)
    edge.wait_ended(*running, *later)
    invariants.holds(edge, [*running, *later])


def test_a_line_that_is_half_open_is_noticed_after_some_heartbeats(edge: Edge):
    running = begin(edge, 1)
    edge.proxy.blackhole()
    since = time.monotonic()
    wait_trouble(edge, lambda one: one != "")
    assert time.monotonic() - since < 4 * HEARTBEAT_S + LATE_S
    later = edge.post_many("count", 2)
    edge.programs.gate.touch()
    edge.wait(lambda: over(edge, running))
    edge.proxy.well()
    edge.wait_ended(*running, *later)
    invariants.holds(edge, [*running, *later])


# -- what the broker does ------------------------------------------------------------------------


def test_the_same_message_many_times(edge: Edge):
    keys = [edge.post("count", times=5) for _ in range(3)]
    edge.wait_ended(*keys)
    serves(edge)
    invariants.holds(edge, keys)


def test_all_connections_are_closed(edge: Edge):
    keys = edge.post_many("count", 3)
    edge.rabbit.control("close_all_connections", "for a test")
    later = edge.post_many("count", 3)
    edge.wait_ended(*keys, *later)
    invariants.holds(edge, [*keys, *later])


def test_its_queues_are_deleted(edge: Edge):
    """They are there again by themselves, those of jobs and of controls."""
    for queue in edge.queues:
        edge.rabbit.control("delete_queue", queue)
    serves(edge)
    edge.control("query", reply="status.deleted")
    edge.wait(lambda: edge.raw("status.deleted"))


def test_its_queue_is_another_one(edge: Edge, tmp_path: Path):
    """The broker closes the channel of who declares it; the agent says so, and goes on after."""
    queue = edge.queues[0]
    edge.proxy.refuse()
    wait_trouble(edge, lambda one: one != "")
    edge.rabbit.control("delete_queue", queue)
    other = {"name": queue, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    (tmp_path / "queues.json").write_text(json.dumps({"queues": [other]}))
    edge.rabbit.control("import_definitions", str(tmp_path / "queues.json"))
    edge.proxy.well()
    wait_trouble(edge, lambda one: "PRECONDITION_FAILED" in one)
    # Controls have a queue of their own.
    edge.control("query", reply="status.another")
    edge.wait(lambda: edge.raw("status.another"))
    edge.rabbit.control("delete_queue", queue)
    wait_trouble(edge, lambda one: one == "")
    serves(edge)


def test_words_that_nobody_listens_to_are_not_waited_for(edge: Edge):
    """The broker takes them and they are gone; whoever asks is told."""
    key = edge.post("count", reply="quiet.nobody")
    edge.wait(lambda: over(edge, [key]))
    edge.wait(lambda: edge.query("SELECT count(*) FROM edge_outbox") == [(0,)])
    assert edge.statuses(key) == []
    edge.control("query", keys=[key], reply="status.asked")
    edge.wait(lambda: edge.raw("status.asked"))
    [result] = edge.raw("status.asked")[0].said["results"]
    assert (result["key"], result["state"], result["ok"]) == (key, "done", True)


# -- papers --------------------------------------------------------------------------------------


class Paper(NamedTuple):
    """Something that is wrong with papers, and how it is set right."""

    name: str
    spoil: Callable[[Edge, Path], None]
    mend: Callable[[Edge], None]
    #: Some of what is said of it.
    words: str = ""


def as_ever(edge: Edge) -> None:
    """Have the broker show what it showed first, and believe whom it believed."""
    authority = edge.rabbit.authority
    edge.rabbit.trust(authority)
    edge.rabbit.become(authority.issue("broker", address=edge.rabbit.address))


def shows(**facts: Any) -> Callable[[Edge, Path], None]:
    """Have the broker show papers of another address, or old ones."""

    def spoil(edge: Edge, folder: Path) -> None:
        told: dict[str, Any] = {"address": edge.rabbit.address, "into": folder} | facts
        edge.rabbit.become(edge.rabbit.authority.issue("broker", **told))

    return spoil


def stranger(folder: Path) -> Authority:
    return Authority(folder, "Nobody's authority")


PAPERS = (
    Paper("ours_are_over", lambda edge, _: edge.renew(seconds=-5), Edge.renew),
    Paper("ours_are_a_stranger_s", lambda edge, at: edge.renew(by=stranger(at)), Edge.renew),
    Paper("ours_count_no_more", lambda edge, at: edge.rabbit.trust(stranger(at)), as_ever),
    Paper(
        "we_believe_another",
        lambda edge, at: edge.believe(stranger(at)),
        lambda edge: edge.believe(edge.rabbit.authority),
        "certificate verify failed",
    ),
    Paper("another_host", shows(address="10.9.9.9"), as_ever, "mismatch"),
    Paper("its_are_over", shows(seconds=-5), as_ever, "expired"),
    Paper(
        "no_key",
        lambda edge, _: (edge.papers / f"{AGENT}.key").unlink(),
        Edge.renew,
        "cannot use the certificates",
    ),
)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda one: one.name)
def test_papers_that_do_not_hold(edge: Edge, tmp_path: Path, paper: Paper):
    """Nothing is said over such a line; set right, it serves again in the same process."""
    running = begin(edge, 1)
    paper.spoil(edge, tmp_path)
    try:
        edge.proxy.cut()
        wait_trouble(edge, lambda one: one not in ("", "the connection was lost"))
        wait_trouble(edge, lambda one: paper.words in one)
        edge.programs.gate.touch()
        edge.wait(lambda: over(edge, running))
        assert [edge.end(key) for key in running] == [None]
    finally:
        paper.mend(edge)
    edge.wait_ended(*running)
    invariants.holds(edge, running)
    serves(edge)


def test_papers_are_renewed_while_jobs_run(edge: Edge):
    running = begin(edge, 1)
    before = edge.proxy.connections
    edge.renew(seconds=30 * 86400)
    edge.wait(lambda: edge.proxy.connections > before)
    edge.wait(lambda: edge.heard("heartbeat")[-1]["certificate_days"] > 20)
    edge.programs.gate.touch()
    edge.wait_ended(*running)
    invariants.holds(edge, running)
    serves(edge)


def test_an_authority_takes_the_place_of_another(edge: Edge, tmp_path: Path):
    old, new = edge.rabbit.authority, Authority(tmp_path, "Next authority")
    running = begin(edge, 1)
    try:
        edge.rabbit.trust(old, new)
        edge.believe(old, new)
        edge.renew(by=new)
        edge.rabbit.become(new.issue("broker", address=edge.rabbit.address))
        edge.believe(new)
        before = edge.proxy.connections
        edge.proxy.cut()
        edge.wait(lambda: edge.proxy.connections > before and trouble(edge) == "", passing=1.0)
        edge.programs.gate.touch()
        edge.wait_ended(*running)
    finally:
        as_ever(edge)
        edge.believe(old)
        edge.renew()
    invariants.holds(edge, running)
    serves(edge)


def test_old_encryption_is_refused(edge: Edge):
    """A server that knows nothing newer than TLS 1.1 is not spoken with."""
    certificate, key = edge.papers / f"{AGENT}.pem", edge.papers / f"{AGENT}.key"
    ca = str(edge.papers / "ca.pem")
    ours = tls_context(
        Broker(url=edge.rabbit.url, ca=ca, certificate=str(certificate), key=str(key))
    )
    assert ours is not None
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.set_ciphers("ALL:@SECLEVEL=0")
    theirs.load_cert_chain(*edge.rabbit.authority.issue("old", address="127.0.0.1"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        theirs.minimum_version = ssl.TLSVersion.TLSv1
        theirs.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_greet, args=(server, theirs), daemon=True)
        thread.start()
        with (
            socket.create_connection(server.getsockname(), PATIENCE) as plain,
            pytest.raises(ssl.SSLError, match=r"(?i)protocol|version"),
        ):
            ours.wrap_socket(plain, server_hostname="127.0.0.1")
        thread.join(PATIENCE)


def _greet(server: socket.socket, context: ssl.SSLContext) -> None:
    one, _ = server.accept()
    with one:
        try:
            context.wrap_socket(one, server_side=True).close()
        except OSError:
            return
