"""The process of an agent: what it does with settings, other agents, and parts that die."""

from __future__ import annotations

import socket
import subprocess

import anyio
import anyio.lowlevel
import pytest

from pilotage.agent import connection, process, settings, status
from pilotage.agent.live_settings import LiveSettings
from pilotage.base import errors
from pilotage.bus.model import Heartbeat
from tests.rigs.broker import agent_parts

PLAIN = """\
site = "mira"
[bus]
url = "amqps://broker/"
certificate = "{certificate}"
[batch]
batch = "local"
[limits]
user = {user}
"""


@pytest.fixture
def written(tmp_path):
    def write(user: object = 1) -> None:
        text = PLAIN.format(certificate=tmp_path / "own.pem", user=user)
        part = tmp_path / "part"
        part.write_text(text)
        part.replace(tmp_path / "agent.toml")

    write()
    return write


def test_settings_that_change_count_and_mistakes_do_not(tmp_path, written):
    async def run() -> None:
        followed = LiveSettings(tmp_path / "agent.toml")
        heard = []

        async def other() -> None:
            await followed.other(lambda one: one.limits, followed().limits)
            heard.append(followed().limits.user)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await anyio.lowlevel.checkpoint()
            written('"many"')
            await followed.look()
            assert followed().limits.user == 1
            assert "limits.user" in followed.trouble
            written(7)
            await followed.look()
        assert (heard, followed.trouble) == ([7], "")

    anyio.run(run)


def test_a_site_does_not_become_another_one(tmp_path, written):
    async def run() -> None:
        followed = LiveSettings(tmp_path / "agent.toml")
        file = tmp_path / "agent.toml"
        file.write_text(file.read_text().replace("mira", "theta"))
        await followed.look()
        assert followed().site == "mira"
        assert "theta" in followed.trouble

    anyio.run(run)


def test_a_certificate_that_is_renewed_is_told_once(tmp_path, written):
    async def run() -> None:
        followed = LiveSettings(tmp_path / "agent.toml")
        told: list[str] = []
        followed.on_renewal.append(told.append)
        await followed.look()
        assert told == []
        (tmp_path / "own.pem").write_text("new")
        await followed.look()
        await followed.look()
        assert told == [""]

    anyio.run(run)


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_settings_that_others_may_write_are_refused(tmp_path, written, mode):
    (tmp_path / "agent.toml").chmod(mode)
    with pytest.raises(errors.Denied, match="can be written by others"):
        settings.read(tmp_path / "agent.toml")


@pytest.mark.parametrize(
    "line, words",
    [
        ('[batch]\nbatch = "nosuch"', "nosuch"),
        ('[batch]\nbatch = "slurm"\nhost = "-far"', "is not a host name"),
        ('[batch]\nbatch = "slurm"\n[keep]\ndone = "soon"', "soon"),
        ('[batch]\nbatch = "slurm"\n[limits]\nfree = "much"', "much"),
        ('[batch]\nbatch = "slurm"\n[shell]\n', "shell"),
        ('patience = 0.0\n[batch]\nbatch = "slurm"', "bus.patience"),
        ('retry = 0.0\n[batch]\nbatch = "slurm"', "bus.retry"),
        ('ahead = 0\n[batch]\nbatch = "slurm"', "bus.ahead"),
        ('[batch]\nbatch = "slurm"\n[limits]\njobs = -1', "limits.jobs"),
        ('[batch]\nbatch = "slurm"\n[limits]\nusers = { eve = -1 }', "limits.users.eve"),
    ],
)
def test_settings_that_cannot_be_say_so(tmp_path, line, words):
    file = tmp_path / "agent.toml"
    file.write_text(f'site = "mira"\n[bus]\nurl = "amqps://b/"\n{line}\n')
    with pytest.raises(errors.ConfigError, match=words):
        settings.read(file)


def test_heartbeats_have_time_between_them(tmp_path):
    file = tmp_path / "agent.toml"
    rest = '[bus]\nurl = "amqps://b/"\n[batch]\nbatch = "slurm"\n'
    file.write_text(f'site = "mira"\nheartbeat = "0s"\n{rest}')
    with pytest.raises(errors.ConfigError, match="heartbeat"):
        settings.read(file)


def test_files_are_named_below_the_folder_wherever_it_is_begun(tmp_path, monkeypatch):
    file = tmp_path / "agent.toml"
    bus = '[bus]\nurl = "amqps://b/"\nca = "ca.pem"\nkey = "/etc/own.key"\n'
    keys = '[credentials."data.example.org"]\ntoken = "data.token"\n'
    file.write_text(f'site = "mira"\n{bus}[batch]\nbatch = "slurm"\n{keys}')
    monkeypatch.chdir("/")
    read = settings.read(file)
    assert (read.bus.ca, read.bus.key) == (str(tmp_path / "ca.pem"), "/etc/own.key")
    assert read.bus.certificate == ""
    assert read.credentials["data.example.org"].token == str(tmp_path / "data.token")


def test_a_password_is_shown_to_nobody(tmp_path):
    bus = settings.SiteBroker(url="amqps://mira:secret@b:5671/x")
    assert bus.place == "amqps://b:5671/x"
    file = settings.write(tmp_path / "agent.toml", "mira", bus, "slurm", ())
    assert file.stat().st_mode & 0o077 == 0


def test_whose_jobs_come_by_a_topic_counts_at_once():
    def asked(user: str) -> object:
        bus = settings.SiteBroker(url="amqps://b/", jobs={"mira": user})
        return connection.spoken(agent_parts.settings(bus=bus))

    assert asked("argo") == asked("argo")
    assert asked("argo") != asked("")


def test_a_site_has_one_agent(tmp_path):
    file = tmp_path / "shared" / "agent-mira.json"
    first, second = process.SiteClaim("aaa", "login1", 1.0), process.SiteClaim("bbb", "login2", 2.0)
    process.claim_site(file, first)
    process.claim_site(file, first)
    with pytest.raises(errors.Conflict, match="login1") as caught:
        process.claim_site(file, second)
    assert "--take-over" in caught.value.hint
    process.claim_site(file, second, over=True)
    process.check_claim(file, second)
    with pytest.raises(errors.Conflict, match="login2"):
        process.check_claim(file, first)
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_the_same_store_at_another_host_is_another_agent(tmp_path):
    file = tmp_path / "agent-mira.json"
    process.claim_site(file, process.SiteClaim("aaa", "login1", 1.0))
    with pytest.raises(errors.Conflict):
        process.claim_site(file, process.SiteClaim("aaa", "login2", 2.0))
    file.write_bytes(b"")
    with pytest.raises(errors.Conflict) as caught:
        process.claim_site(file, process.SiteClaim("aaa", "login1", 1.0))
    assert "--take-over" in caught.value.hint


def test_how_an_agent_is_is_found_again(tmp_path):
    state = tmp_path / ".pilotage"
    state.mkdir()
    with pytest.raises(errors.NotFound, match="no agent has run"):
        status.read(state)
    seen = status.AgentStatus(
        beat=Heartbeat(site="mira", time=1.0, version="1"), parts={"a": "b"},
        carriers=(
            status.ConnectionStatus(trouble="gone"),
            status.ConnectionStatus(name="lab", kind="hub"),
        ),
    )  # fmt: skip
    status.write(state, seen)
    assert status.read(state) == seen
    assert [one.name for one in state.iterdir()] == [status.FILE]


def test_the_days_of_a_certificate(tmp_path):
    words = "openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 10"
    argv = [*words.split(), "-subj", "/CN=x"]
    subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    certificate, now = status.Certificate(), (tmp_path / "c.pem").stat().st_mtime
    assert certificate.days(str(tmp_path / "c.pem"), now) == pytest.approx(10, abs=0.1)
    assert certificate.days(str(tmp_path / "c.pem"), now + 11 * 86400) == pytest.approx(-1, abs=0.1)
    assert certificate.days("", now) is None
    (tmp_path / "c.pem").write_text("rubbish")
    assert certificate.days(str(tmp_path / "c.pem"), now) is None


def test_systemd_hears_of_us(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        process.notify_systemd("READY=1")
        assert heard.recv(100) == b"READY=1"
    process.notify_systemd("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    process.notify_systemd("READY=1")
