"""Parts of the hand and of batch jobs that need no process."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from pilotage.batch.login import BOOTSTRAP
from pilotage.node import claim, durable, frame, tidy
from pilotage.node.batchjob import order
from pilotage.node.batchjob.files import look
from pilotage.node.login import files, news, orders


def test_the_bootstrap_is_plain_text_that_old_pythons_can_read():
    assert BOOTSTRAP.isascii()
    assert ":=" not in BOOTSTRAP
    assert 'f"' not in BOOTSTRAP
    compile(BOOTSTRAP, "bootstrap", "exec")
    done = subprocess.run(
        [sys.executable, "-c", BOOTSTRAP, "/proc/nowhere", "0" * 64, "x"],
        capture_output=True,
        check=False,
    )
    assert done.stdout.startswith(b"bad ")


def test_an_order_reads_as_it_was_written(tmp_path):
    launch = {"key": "1.1", "dir": "/d", "cwd": "/c", "argv": ["a\nb", "é", "\udc80"]}
    items = [{"launch": {**launch, "key": f"{n}.1"}} for n in range(3)]
    head = {"v": 1, "key": "k", "root": "/r"}
    text = orders.rendered({**head, "items": items})
    assert json.loads(text) == {**head, "items": items}
    assert text == orders.rendered({"items": items, "root": "/r", "key": "k", "v": 1})
    for written in (text, json.dumps({**head, "items": items}, indent=1)):
        (tmp_path / "order.json").write_text(written)
        assert [order.item(one) for one in order.items(str(tmp_path))] == items


def test_an_item_without_what_it_needs_is_refused():
    for text in ("", "{}", '{"launch": {}}', '{"launch": {"key": 1, "dir": "", "cwd": ""}}', "[]"):
        with pytest.raises(order.OrderError):
            order.item(text)


@pytest.mark.parametrize(
    "env,name",
    [
        ({}, ""),
        ({"SLURM_JOB_ID": "7"}, "slurm:7"),
        ({"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}, "slurm:7_3"),
        ({"JOB_ID": "7", "SGE_TASK_ID": "undefined"}, "gridengine:7"),
        ({"JOB_ID": "7", "SGE_TASK_ID": "2"}, "gridengine:7.2"),
        ({"LSB_JOBID": "7", "LSB_JOBINDEX": "0"}, "lsf:7"),
        ({"LSB_JOBID": "7", "LSB_JOBINDEX": "2"}, "lsf:7[2]"),
        ({"PBS_JOBID": "7[2].host"}, "pbs:7[2].host"),
        ({"PILOTAGE_BATCH": "local:x", "SLURM_JOB_ID": "7"}, "local:x"),
    ],
)
def test_the_batch_job_has_a_name(env, name):
    assert order.batch(env) == name


def test_gpus_of_the_batch_job_are_passed_on():
    launch = {"argv": ["a"], "env": {"X": "1"}}
    given = order.completed(launch, {"SLURM_JOB_GPUS": "1,2", "Y": "2"})
    assert given["env"] == {"X": "1", "CUDA_VISIBLE_DEVICES": "1,2"}
    given = order.completed(launch, {"SLURM_JOB_GPUS": "1,2", "CUDA_VISIBLE_DEVICES": "0"})
    assert given["env"] == {"X": "1", "CUDA_VISIBLE_DEVICES": "0"}
    own = {"argv": ["a"], "env": {"CUDA_VISIBLE_DEVICES": ""}}
    assert order.completed(own, {"CUDA_VISIBLE_DEVICES": "0"})["env"] == own["env"]


def test_a_claim_whose_answer_got_lost_is_ours(tmp_path, monkeypatch):
    real = os.rename

    def lossy(source: str, target: str) -> None:
        real(source, target)
        raise FileNotFoundError(errno.ENOENT, "sent again by the client", source)

    monkeypatch.setattr(os, "rename", lossy)
    assert claim.take(str(tmp_path), 0, {"who": "a"}) is None
    found = claim.take(str(tmp_path), 0, {"who": "b"})
    assert found is not None
    assert found["who"] == "a"
    assert [one.name for one in tmp_path.iterdir()] == ["0.claim"]


def test_a_claim_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        claim.take(str(tmp_path), 0, {})
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    target = tmp_path / "file"
    durable.write(str(target), "one")

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"file\.part"):
        durable.write(str(target), "two")
    assert target.read_text() == "one"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_link_in_the_place_of_a_part_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("x")
    (tmp_path / "file.part").symlink_to("precious")
    with pytest.raises(OSError, match=r"file\.part"):
        durable.write(str(tmp_path / "file"), "y")
    assert (tmp_path / "precious").read_text() == "x"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
@pytest.mark.needs("mount")
def test_what_is_mounted_is_not_removed(tmp_path):
    inner = tmp_path / "folder" / "deep" / "mounted"
    inner.mkdir(parents=True)
    (tmp_path / "folder" / "file").write_text("")
    subprocess.run(["mount", "-t", "tmpfs", "none", inner], check=True)
    try:
        (inner / "precious").write_text("x")
        tidy.remove(str(tmp_path / "folder"))
        assert (inner / "precious").exists()
        assert not (tmp_path / "folder" / "file").exists()
    finally:
        subprocess.run(["umount", inner], check=True)
    tidy.remove(str(tmp_path / "folder"))
    assert not (tmp_path / "folder").exists()


def test_errors_have_kinds():
    def kind(number: int) -> str:
        return files.error_reply(OSError(number, os.strerror(number), "/x"))["kind"]

    assert kind(errno.ENOSPC) == kind(errno.EDQUOT) == kind(errno.EROFS) == "disk"
    assert kind(errno.EACCES) == kind(errno.EPERM) == "denied"
    assert kind(errno.ENOENT) == "missing"
    assert files.error_reply(OSError(errno.ENOSPC, "full", "/x"))["error"] == "/x: full"
    assert files.error_reply(KeyError("key"))["kind"] == "usage"
    assert files.error_reply(MemoryError())["kind"] == "other"


def test_paths_stay_below_the_root():
    assert files.inside("/r", "a/./b") == "/r/a/b"
    assert files.inside("/r", "/r/a") == "/r/a"
    for path in ("..", "/r", "/rx", "a/../..", "/r/../etc", "a\0b"):
        with pytest.raises(files.RequestError):
            files.inside("/r", path)


def test_news_are_looked_for_only_when_the_folder_changed(tmp_path, monkeypatch):
    told: list[dict[str, Any]] = []
    one = news.News(str(tmp_path), told.append)
    (tmp_path / "k.0.ended").write_text("{}")
    assert one.look()
    assert not one.look()
    long_ago = tmp_path.stat().st_mtime_ns - 60_000_000_000
    os.utime(tmp_path, ns=(long_ago, long_ago))
    one.look()
    listed: list[int] = []
    real = os.listdir

    def counted(fd: int) -> list[str]:
        listed.append(fd)
        return real(fd)

    monkeypatch.setattr(os, "listdir", counted)
    assert not one.look()
    assert not one.look()
    assert listed == []
    (tmp_path / "k.1.ended").write_text("{}")
    assert one.look()
    assert [item["name"] for bulk in told for item in bulk["news"]] == ["k.0.ended", "k.1.ended"]


def test_a_frame_may_be_longer_where_that_is_agreed():
    data = frame.pack('{"a":"' + "x" * frame.LIMIT + '"}', 2 * frame.LIMIT)
    assert len(frame.Reader(2 * frame.LIMIT).feed(data)) == 1
    with pytest.raises(frame.FrameError):
        frame.Reader().feed(data)


def test_outputs_that_cannot_be_read_are_told(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("x")

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "open", broken)
    found, wrong = look({"a": str(tmp_path / "a")}, lambda: None)
    assert found == {"a": None}
    assert wrong == ["its output a cannot be read: broken"]
