"""The login helper at a login node, as a process."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.node import claim
from pilotage.pilot import pack
from tests.rigs.node.login_helper import PACKAGE, SOURCE, LoginHelper, Place, wait_for

_PYTHONS = Path.home() / ".pyenv" / "versions"


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path / "root")


@pytest.fixture
def hand(place) -> Iterator[LoginHelper]:
    with LoginHelper.plain(place.root) as one:
        yield one


def cached(place: Place, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = place.root / "cache" / digest[:2] / digest
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o444)
    return digest


def tell(place: Place, name: str, text: str = "{}") -> None:
    part = place.root / "news" / f".{name}.part"
    part.write_text(text)
    part.rename(place.root / "news" / name)


# ---------------------------------------------------------------------------------- bringing it


def test_it_is_brought_once_and_then_there(tmp_path):
    root = tmp_path / "a folder with 'quotes'"
    sha = hashlib.sha256(pack.archive()).hexdigest()
    for said in ("need\n", "have\n"):
        hand, line = LoginHelper.booted(root)
        with hand:
            assert line == said
            hello = hand("hello")
            assert hello["version"] == sha
            assert hello["root"] == str(root)
            assert hello["pid"]
            assert hello["free"] > 0
            assert abs(hello["time"] - time.time()) < 30
            assert hand.close() == 0
    names = [one.name for one in (root / "bin").iterdir()]
    assert f"{sha}.pyz" in names
    assert not [name for name in names if name.endswith(".part")]
    assert (root / "bin").stat().st_mode & 0o777 == 0o700


def test_a_damaged_program_is_brought_again(tmp_path):
    sha = hashlib.sha256(pack.archive()).hexdigest()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / f"{sha}.pyz").write_bytes(b"half of it")
    hand, line = LoginHelper.booted(tmp_path)
    with hand:
        assert line == "need\n"
        assert hand("hello")["version"] == sha


def test_the_home_directory_is_that_of_the_site(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    hand, _ = LoginHelper.booted("~/.pilotage/p1")
    with hand:
        assert hand("hello")["root"] == str(tmp_path / ".pilotage/p1")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    hand, line = LoginHelper.booted(tmp_path / "file" / "deeper")
    with hand:
        assert line.startswith("bad ")
        assert "file" in line


@pytest.mark.skipif(not list(_PYTHONS.glob("3.[678].*")), reason="no old Python is here")
def test_a_python_that_is_too_old_says_so(tmp_path):
    for old in sorted(_PYTHONS.glob("3.[678].*")):
        hand, line = LoginHelper.booted(tmp_path / "root", str(old / "bin" / "python3"))
        with hand:
            assert line == f"old {old.name}\n"
    assert not (tmp_path / "root").exists()


@pytest.mark.skipif(not list(_PYTHONS.glob("3.*/bin/python3")), reason="no other Python is here")
def test_hand_and_job_run_on_every_python(tmp_path):
    found = [one for one in sorted(_PYTHONS.glob("3.*")) if int(one.name.split(".")[1]) > 8]
    for python in found:
        place = Place(tmp_path / python.name)
        program = str(python / "bin" / "python3")
        hand, _ = LoginHelper.booted(place.root, program)
        with hand:
            hello = hand("hello")
            assert hello["python"] == python.name
            order = place.order("k", place.item("k", *place.noted("k")))
            assert hand("prepare", key="k", order=order, links=[]) == {"missing": []}
            archive = place.root / "bin" / f"{hello['version']}.pyz"
            argv = [program, str(archive), "job", str(place.root / "s/k")]
            quick = f"{archive}.cpython-{''.join(python.name.split('.')[:2])}"
            wait_for(Path(quick).exists)
            said = hand("run", argv=argv, timeout=30)
            assert said["exit"] == 0, said
            wait_for(lambda one: len(one.news) == 2, hand)
            assert place.runs("k") == 1


# ------------------------------------------------------------------------------------ commands


def test_it_runs_a_command_with_input_and_environment(hand, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "mytool").write_text('#!/bin/sh\necho "$A $1"; cat; echo bad >&2; exit 7\n')
    (tools / "mytool").chmod(0o755)
    said = hand("run", argv=["mytool", "$HOME; x"], input="in é", env={"A": "b"}, path=[str(tools)])
    assert said == {"exit": 7, "out": "b $HOME; x\nin é", "err": "bad\n", "late": False}


def test_a_program_that_is_missing_is_told(hand):
    reply = hand.ask("run", argv=["no-such-program"], path=["/nowhere"])
    assert reply["kind"] == "missing"
    assert "no-such-program" in reply["error"]
    assert "/nowhere" in reply["error"]
    assert hand.ask("run", argv=[])["kind"] == "usage"
    assert hand.ask("run")["kind"] == "usage"


def test_a_command_that_takes_too_long_is_killed_with_its_children(hand, tmp_path):
    script = f"sleep 1000 & echo $! > {tmp_path}/child; echo so far; wait"
    begun = time.monotonic()
    said = hand("run", argv=["sh", "-c", script], timeout=2.0)
    assert time.monotonic() - begun < 20
    assert (said["exit"], said["late"], said["out"]) == (-1, True, "so far\n")
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: not Path(f"/proc/{child}").exists() or _state(child) in "ZX")


def test_slow_commands_hold_nothing_up(hand, tmp_path):
    gate = tmp_path / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.5; done"
    slow = [hand.send("run", argv=["sh", "-c", wait], timeout=60) for _ in range(40)]
    assert hand("stat", paths=["news"])["found"]["news"]["kind"] == "folder"
    assert all(one.empty() for one in slow)
    gate.touch()
    assert all(one.get(timeout=60)["ok"]["exit"] == 0 for one in slow)


def test_a_listing_is_whole_or_an_error(hand):
    size = 20_000_000
    said = hand("run", argv=["sh", "-c", f"yes | head -c {size}"])
    assert said["out"] == "y\n" * (size // 2)
    reply = hand.ask("run", argv=["yes"], timeout=60)
    assert reply["kind"] == "other"
    assert "bytes" in reply["error"]
    noisy = hand("run", argv=["sh", "-c", "head -c 1000000 /dev/zero >&2; echo ok"])
    assert noisy["out"] == "ok\n"
    assert len(noisy["err"]) == 64 << 10


def test_a_daemon_that_holds_the_output_does_not_hold_the_reply(hand):
    said = hand("run", argv=["sh", "-c", "setsid sleep 600 & echo $!"], timeout=30)
    os.kill(int(said["out"]), signal.SIGKILL)
    assert not said["late"]


def test_commands_leave_no_zombies(hand):
    for _ in range(5):
        hand("run", argv=["true"])
        hand("run", argv=["sleep", "9"], timeout=0.05)
        hand("run", argv=["true"], detach=True)
    wait_for(lambda: not _children(hand.process.pid))


def test_a_detached_command_outlives_the_hand(place):
    (place.root / "s" / "k").mkdir()
    folder = str(place.root / "s" / "k")
    with LoginHelper.plain(place.root) as hand:
        argv = ["sh", "-c", "echo begun; sleep 1; echo ended"]
        said = hand("run", argv=argv, detach=True, folder=folder)
        assert said["exit"] == 0
        assert int(said["out"]) > 0
    wait_for(lambda: (place.root / "s/k/out.step").read_text() == "begun\nended\n")


def test_it_ends_with_its_input_and_takes_running_commands_along(place):
    with LoginHelper.plain(place.root) as hand:
        reply = hand.send("run", argv=["sh", "-c", "echo $$ > pid; exec sleep 1000"], timeout=900)
        wait_for(lambda: (place.root / "pid").exists() and (place.root / "pid").read_text())
        pid = int((place.root / "pid").read_text())
        begun = time.monotonic()
        assert hand.close() == 0
        assert time.monotonic() - begun < 20
    assert reply.empty() or reply.get()["ok"]["late"]
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_it_ends_when_nobody_reads_what_it_says(place):
    program = subprocess.Popen(
        [*PACKAGE, "hand", str(place.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    with program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.wait(60) == 0


def test_what_is_no_frame_ends_it_with_words(place):
    with LoginHelper.plain(place.root) as hand:
        hand._in.write(b"\0\0\0\5hello")
        assert hand.process.wait(60) == 1
    assert b"not JSON" in hand.complaints


# --------------------------------------------------------------------------- orders and fences


def test_an_order_is_prepared_once_and_never_changed(hand, place):
    digest = cached(place, b"input")
    order = place.order("k", place.item("k", "true"), place.item("k", "false", index=1))
    absent = "0" * 64
    assert hand("prepare", key="k", order=order, links=[digest, absent]) == {"missing": [absent]}
    assert not (place.root / "s/k/order.json").exists()
    for _ in range(2):
        assert hand("prepare", key="k", order=order, links=[digest]) == {"missing": []}
    assert json.loads((place.root / "s/k/order.json").read_text()) == order
    assert (place.root / "s/k/in" / digest).stat().st_nlink == 2
    other = place.order("k", place.item("k", "date"))
    reply = hand.ask("prepare", key="k", order=other, links=[])
    assert reply["kind"] == "usage"
    assert "order.json" in reply["error"]
    assert json.loads((place.root / "s/k/order.json").read_text()) == order
    assert (place.root / "s/k/order.json").stat().st_mode & 0o777 == 0o600


def test_keys_and_digests_cannot_be_paths(hand):
    for key in ("../x", "a/b", "", ".", "a.b", 3, "a\n"):
        assert hand.ask("fence", key=key, count=1)["kind"] == "usage"
        assert hand.ask("drop", keys=[key])["kind"] == "usage"
    order = {"v": 1, "items": []}
    assert hand.ask("prepare", key="k", order=order, links=["../../x"])["kind"] == "usage"
    assert hand.ask("ack", names=["../s"])["kind"] == "usage"


def test_a_fence_takes_what_nobody_has_begun(hand, place):
    folder = place.submit("k", *(place.item("k", *place.noted("k"), index=i) for i in range(3)))
    assert place.run(folder, env={"SLURM_ARRAY_TASK_ID": "1"}).returncode == 0
    found = hand("fence", key="k", count=3)
    assert found["free"] == [0, 2]
    assert found["taken"]["1"]["attempt"] == "k-1.1"
    assert hand("fence", key="k", count=3) == found
    late = place.run(folder, env={"SLURM_ARRAY_TASK_ID": "2"})
    assert late.returncode == 0
    assert late.stdout.startswith("duplicate")
    assert place.runs("k") == 1


def test_fences_and_jobs_at_the_same_time_agree(hand, place):
    count = 12
    items = (place.item("k", *place.noted("k"), index=i) for i in range(count))
    folder = place.submit("k", *items)
    jobs = [place.start(folder, env={"PILOTAGE_INDEX": str(i)}) for i in range(count)]
    fences = [hand.send("fence", key="k", count=count) for _ in range(4)]
    found = [one.get(timeout=60)["ok"] for one in fences]
    for job in jobs:
        job.communicate(timeout=60)
    assert all(one == found[0] or set(one["free"]) >= set(found[0]["free"]) for one in found)
    last = hand("fence", key="k", count=count)
    assert place.runs("k") == len(last["taken"]) == count - len(last["free"])


def test_what_is_dropped_is_gone_and_nothing_else(hand, place, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    folder = place.submit("k", place.item("k", "true"))
    (folder / "0").mkdir()
    (folder / "0" / "link").symlink_to(outside)
    (folder / "0" / "deep").mkdir()
    (folder / "0" / "deep" / "file").write_text("")
    (folder / "0" / "deep").chmod(0)
    place.submit("other", place.item("other", "true"))
    assert hand("drop", keys=["k", "never"]) == {"dropped": ["k"]}
    assert not folder.exists()
    wait_for(lambda: not list((place.root / "trash").iterdir()))
    assert (outside / "precious").exists()
    assert (place.root / "s/other/order.json").exists()


# ----------------------------------------------------------------------------------------- news


def test_news_are_told_at_once_and_once(hand, place):
    wait_for(lambda: hand("hello"))
    took = []
    for n in range(20):
        tell(place, f"k.{n}.ended", json.dumps({"n": n}))
        written = time.time()
        wait_for(lambda name: name in hand.names(), f"k.{n}.ended")
        arrived = next(at for at, item in hand.news if item["name"] == f"k.{n}.ended")
        took.append(arrived - written)
    # Others may keep the machine busy, but not for most of them.
    assert sorted(took)[10] < 1.0
    assert hand.news[3][1] == {"name": "k.3.ended", "body": {"n": 3}}
    time.sleep(0.3)
    assert sorted(hand.names()) == sorted(f"k.{n}.ended" for n in range(20))
    assert hand("ack", names=["k.0.ended", "k.77.ended"]) == {}
    assert not (place.root / "news/k.0.ended").exists()


def test_news_that_are_not_acknowledged_are_told_to_the_next(place):
    tell(place, "k.0.started")
    for _ in range(2):
        with LoginHelper.plain(place.root) as hand:
            wait_for(lambda one: one.names() == ["k.0.started"], hand)


def test_junk_among_the_news_does_no_harm(hand, place):
    news = place.root / "news"
    (news / "README").write_text("junk")
    (news / ".k.1.ended.part").write_text("half")
    (news / "k.2.ended").mkdir()
    (news / "k.3.ended").symlink_to("/etc/passwd")
    os.mkfifo(news / "k.4.ended")
    tell(place, "k.5.ended", '{"half":')
    tell(place, "k.6.ended", "[]")
    tell(place, "k.7.ended", '{"good": "\\udc80"}')
    wait_for(lambda: len(hand.news) >= 6)
    time.sleep(0.5)
    assert sorted(hand.names()) == [f"k.{n}.ended" for n in range(2, 8)]
    found = {item["name"]: item for _, item in hand.news}
    assert found["k.7.ended"]["body"] == {"good": "\udc80"}
    assert all("error" in found[f"k.{n}.ended"] for n in range(2, 7))
    assert hand.complaints.count(b"README") == 1


def test_many_news_arrive_in_bulks(hand, place):
    for n in range(2000):
        tell(place, f"k.{n}.ended", json.dumps({"n": n, "pad": "x" * 5000}))
    wait_for(lambda: len(hand.news) == 2000)
    assert len(set(hand.names())) == 2000


def test_a_folder_of_news_that_comes_back_is_seen_again(hand, place):
    hand("hello")
    news = place.root / "news"
    news.rename(place.root / "away")
    wait_for(lambda: b"cannot look for news" in hand.complaints)
    (place.root / "away").rename(news)
    tell(place, "k.0.ended")
    wait_for(lambda: hand.names() == ["k.0.ended"])


# ---------------------------------------------------------------------------------------- files


def test_files_are_read_below_the_root_only(hand, place, tmp_path):
    (place.root / "s" / "file").write_bytes(b"0123456789\xff")
    found = hand("read", paths=["s/file", str(place.root / "s/none")], most=4)["files"]
    assert found["s/file"] == {"data": base64.b64encode(b"0123").decode(), "size": 11}
    assert found[str(place.root / "s/none")] is None
    tails = hand("tails", files=[["s/file", 8, 100], ["s/none", 0, 5], ["s/file", 11, 5]])
    assert [base64.b64decode(one) for one in tails["tails"]] == [b"89\xff", b"", b""]
    for path in ("/etc/passwd", "../x", "s/../../x", f"{place.root}x/y", str(place.root)):
        for op in ("read", "stat", "list"):
            assert hand.ask(op, paths=[path])["kind"] == "denied"
        assert hand.ask("tails", files=[[path, 0, 1]])["kind"] == "denied"


def test_links_of_payloads_lead_nowhere(hand, place, tmp_path):
    (tmp_path / "secret").write_text("secret")
    area = place.root / "s"
    (area / "good").write_text("good")
    (area / "inner").symlink_to("good")
    (area / "out").symlink_to(tmp_path / "secret")
    (area / "folder").symlink_to(tmp_path)
    (area / "loop").symlink_to("loop")
    os.mkfifo(area / "pipe")
    paths = ["s/inner", "s/out", "s/folder/secret", "s/loop", "s/pipe"]
    found = hand("read", paths=paths)["files"]
    assert base64.b64decode(found["s/inner"]["data"]) == b"good"
    assert [found[path] for path in paths[1:]] == [None] * 4
    facts = hand("stat", paths=paths)["found"]
    assert facts["s/inner"]["kind"] == "file"
    assert facts["s/pipe"]["kind"] == "other"
    assert facts["s/out"] is facts["s/folder/secret"] is None


def test_folders_are_listed(hand, place):
    (place.root / "s" / "b").write_text("")
    (place.root / "s" / "a").mkdir()
    found = hand("list", paths=["s"])["found"]["s"]
    assert (found["kind"], found["names"]) == ("folder", ["a", "b"])


# -------------------------------------------------------------------------------------- trouble


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a disk that is full")
@pytest.mark.needs("mount")
def test_a_full_disk_is_told_and_survived(tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", root], check=True)
    try:
        place = Place.__new__(Place)
        place.root = root
        with LoginHelper.plain(root) as hand:
            hand("hello")
            (root / "filler").write_bytes(b"x" * 500_000)
            order = place.order(
                "k", place.item("k", "true", launch={"files": {"a": "y" * 700_000}})
            )
            reply = hand.ask("prepare", key="k", order=order, links=[])
            assert reply["kind"] == "disk", reply
            assert str(root) in reply["error"]
            (root / "filler").unlink()
            assert hand("prepare", key="k", order=order, links=[]) == {"missing": []}
            assert hand("hello")["free"] >= 0
    finally:
        subprocess.run(["umount", "-l", root], check=True)


def test_unknown_operations_and_odd_requests_are_refused(hand):
    assert hand.ask("fly")["kind"] == "usage"
    assert hand.ask("read", paths=3)["kind"] == "usage"
    assert hand.ask("prepare", key="k", order=[], links=[])["kind"] == "usage"
    assert hand("have", digests=["0" * 64])["have"] == []


# ---------------------------------------------------------------------------------------- relay


def test_it_relays_to_a_port_of_its_node(hand):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        door = hand("relay", port=port, host="127.0.0.1")["port"]
        assert hand("relay", port=port, host="127.0.0.1")["port"] == door
        for text in (b"one", b"x" * 3_000_000):
            with socket.create_connection(("127.0.0.1", door)) as client:
                threading.Thread(target=_give, args=(client, text), daemon=True).start()
                data = b""
                while piece := client.recv(1 << 16):
                    data += piece
                assert data == text[::-1]


def test_a_door_that_another_lets_go_of_soon_has_its_number_again(hand):
    with socket.create_server(("127.0.0.1", 0)) as leaving:
        number = leaving.getsockname()[1]
        door = hand.send("relay", port=9, host="127.0.0.1", listen=number)
        hand("stat", paths=["news"])
        assert door.empty()
    assert door.get(timeout=30)["ok"]["port"] == number
    # One that is its own stays, so that another is given at once.
    assert hand("relay", port=10, host="127.0.0.1", listen=number)["port"] != number


def test_a_door_to_nowhere_closes(hand):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    door = hand("relay", port=port, host="127.0.0.1")["port"]
    with socket.create_connection(("127.0.0.1", door)) as client:
        assert client.recv(1) == b""


def test_a_claim_is_whole_whoever_looks(tmp_path):
    assert claim.take(tmp_path, 0, {"who": "a"}) is None
    found = claim.take(tmp_path, 0, {"who": "b"})
    assert found is not None
    assert found["who"] == "a"
    assert claim.holder(str(tmp_path), 1) is None
    (tmp_path / "1.claim").mkdir()
    assert claim.holder(str(tmp_path), 1) == {}


def _give(client: socket.socket, text: bytes) -> None:
    client.sendall(text)
    client.shutdown(socket.SHUT_WR)


def _echo(server: socket.socket) -> None:
    while True:
        try:
            one, _ = server.accept()
        except OSError:
            return
        with one:
            data = b""
            while piece := one.recv(1 << 16):
                data += piece
            one.sendall(data[::-1])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _children(pid: int) -> list[str]:
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return found
