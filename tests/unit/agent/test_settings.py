"""Where the jobs of an agent come from, as its settings say: a broker or a hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.agent import settings
from pilotage.agent.settings import DialledHub
from pilotage.base import errors
from pilotage.cli import agent, site_check, token
from pilotage.cli.common import Common
from pilotage.project.tokens import TokenScope

HEAD = 'site = "kit"\n[batch]\nbatch = "slurm"\n'
BUS = '[bus]\nurl = "amqps://broker:5671/"\n'
HUB = '[hub]\nurl = "https://hub:8420"\n'


def parse(*tables: str, hub: str = "") -> settings.Settings:
    return settings.parse(HEAD + "".join(tables), Path("agent.toml"), hub)


def test_jobs_come_by_a_broker_or_from_a_hub():
    assert parse(BUS).source == "amqps://broker:5671/"
    assert parse(HUB).source == "https://hub:8420"
    assert parse(hub="https://other:8420").source == "https://other:8420"
    assert parse(HUB, hub="https://other:8420").source == "https://other:8420"
    made = parse(HUB)
    assert (made.job_topics, made.control_topic) == ({"job.kit": ""}, "control.kit")
    assert (made.hub.user, made.hub.token_file) == ("hub", "hub-token")


@pytest.mark.parametrize(
    "tables, hub, words",
    [
        ("", "", "there is no source of jobs"),
        (BUS + HUB, "", "cannot be set together with"),
        (BUS, "https://hub:8420", "cannot be set together with"),
        ('[hub]\nurl = "amqps://x/"\n', "", "must begin with `https://`"),
        (HUB + 'user = ""\n', "", "`hub.user` cannot be empty"),
        (HUB + "retry = 0\n", "", "`hub.retry` cannot be below"),
        (HUB + "heartbeat = 0.5\n", "", "`hub.heartbeat` cannot be below"),
        (HUB + 'nosuch = "x"\n', "", "nosuch"),
        ('[bus]\nurl = "http://x/"\n', "", "must begin with `amqps://`"),
    ],
)
def test_what_cannot_be_is_refused(tables: str, hub: str, words: str):
    with pytest.raises(errors.ConfigError, match=words):
        parse(tables, hub=hub)


def test_files_of_the_hub_are_found_from_the_folder_of_the_agent(tmp_path: Path):
    file = tmp_path / "agent.toml"
    file.write_text(HEAD + HUB + 'ca = "hub.pem"\n')
    found = settings.read(file).hub
    assert (found.ca, found.token_file) == (f"{tmp_path}/hub.pem", f"{tmp_path}/hub-token")


def test_a_draft_for_a_hub_can_be_read(tmp_path: Path):
    file = tmp_path / "agent.toml"
    settings.write(file, "kit", DialledHub(url="https://hub:8420", ca="hub.pem"), "slurm", ())
    made = settings.read(file)
    assert (made.site, made.hub.url, made.bus.url) == ("kit", "https://hub:8420", "")


def test_setup_takes_one_of_the_two(tmp_path: Path):
    given = agent.Given(batch="slurm", hub="https://hub:8420", url="amqps://broker/")
    with pytest.raises(errors.UsageError, match="not both"):
        agent.setup("kit", given=given, folder=tmp_path)
    given = agent.Given(batch="slurm", hub="https://hub:8420")
    said = agent.setup("kit", given=given, folder=tmp_path)
    assert "pilotage token new agent --site kit" in " ".join(said.notes)


def test_a_site_of_the_project_gets_no_agent(tmp_path: Path):
    (tmp_path / "pilotage.toml").touch()
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "kit.toml").write_text('batch = "local"\n')
    at = Common(project=tmp_path)
    with pytest.raises(errors.Conflict, match="is a site of this project already"):
        token.new(TokenScope.AGENT, site="kit", at=at)
    assert token.new(TokenScope.AGENT, site="mira", at=at).data["scope"] == "agent"
    (check,) = site_check.check("mira", at=at).data["checks"]
    assert (check["name"], check["verdict"]) == ("agent", "warn")
