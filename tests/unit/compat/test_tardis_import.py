"""Files of TARDIS as sites and pools of ours: what is carried over, and what is told to be lost."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import errors
from pilotage.batch import files as sites
from pilotage.cli.common import Common
from pilotage.cli.pool_import import import_
from pilotage.compat.cobald import carry, document, tardis
from pilotage.compat.cobald.carry import reach
from pilotage.compat.cobald.document import Element
from pilotage.pool import files

TEXT = """
Plugins:
  SqliteRegistry: {db_file: drone_registry.db}
  TelegrafMonitoring: {host: localhost}
BatchSystem: {adapter: HTCondor, max_age: 1}
Sites:
  - name: hpc.one
    adapter: Slurm
    quota: 462
    drone_heartbeat_interval: 30
    drone_minimum_lifetime: 3600
  - {name: farm, adapter: HTCondor, quota: -1}
hpc.one:
  StatusUpdate: 2
  executor: !TardisSSHExecutor
    host: login.example.org
    username: clown
    client_keys: [/opt/keys/one, /opt/keys/two]
    mfa_config: [{prompt: Code, totp: SECRET}]
  MachineTypes: [whole, half]
  MachineTypeConfiguration:
    whole:
      Walltime: '1-12:30'
      Partition: normal
      StartupCommand: start.sh
      SubmitOptions: {long: {account: abc, gres: 'tmp:1G'}, short: {C: fast}}
    half: {Walltime: 1440, Partition: normal, StartupCommand: start.sh}
  MachineMetaData:
    whole: {Cores: 42, Memory: 256, Disk: 840}
    half: {Cores: 21, Memory: 2.5}
farm:
  max_age: 1
  MachineTypes: [wn]
  MachineTypeConfiguration: {wn: {jdl: pilot.jdl, SubmitOptions: {pool: x}}}
  MachineMetaData: {wn: {Cores: 8, Memory: 16}}
"""
CLOUD = """
Sites:
  - {name: cloud, adapter: OpenStack, quota: 10}
cloud: {MachineTypes: [a], MachineMetaData: {a: {Cores: 1}}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pilotage.toml").touch()
    return tmp_path


def run(root: Path, text: str, *, dry_run: bool = False) -> tuple[int, dict[str, Any]]:
    file = root / "tardis.yml"
    file.write_text(text)
    found = import_(file, dry_run=dry_run, at=Common(project=root))
    return found.status, found.data


def place(**facts: Any) -> tardis.TardisSite:
    machine = tardis.Machine("m", 4.0, None, None, {})
    given: dict[str, Any] = {
        "name": "one", "adapter": "Slurm", "quota": 8.0, "machines": (machine,), "executor": None,
    }  # fmt: skip
    return tardis.TardisSite(**given | facts)


# -- reading -------------------------------------------------------------------------------------


def test_sites_and_machine_types_are_read():
    found = tardis.read(document.read(TEXT))
    one, two = found.places
    assert (one.quota, two.quota) == (462.0, math.inf)
    assert (one.heartbeat, one.lifetime) == (30.0, 3600.0)
    assert [kind.cores for kind in one.machines] == [42.0, 21.0]
    assert set(found.general) == {"Plugins", "BatchSystem"}


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("quota: 462", "quota: 0", "its quota is 0"),
        ("quota: 462", "quota: many", "`quota` is no number"),
        ("quota: 462", "quota: .nan", "`quota` is no number"),
        ("Cores: 42", "Cores: .inf", "has inf cores"),
        ("Memory: 256", "Memory: .inf", "`Memory` is no number"),
        ("Sites:", "Places:", "there are no `Sites`"),
        ("name: hpc.one", "name: other", "there is no section `other`"),
        ("Cores: 42, ", "", "has no `Cores`"),
        ("Cores: 42", "Cores: 0", "0 cores"),
        ("MachineTypes: [wn]", "Types: [wn]", "has no `MachineTypes`"),
        ("[whole, half]", "[whole, whole]", "would be the pool `hpc_one_whole`"),
        ("adapter: Slurm", "adopter: Slurm", "has `name`, `adapter` and `quota`"),
    ],
)
def test_what_is_no_configuration_of_tardis_is_refused(old, new, said):
    with pytest.raises(errors.ConfigError, match=said):
        tardis.read(document.read(TEXT.replace(old, new)))


@pytest.mark.parametrize(
    "text, name",
    [("a_m1.large", "a_m1_large"), ("1st_x", "p1st_x"), ("é", "p_"), ("x" * 50, "x" * 40)],
)
def test_names_are_made_plain(text, name):
    assert tardis.plain_name(text) == name


# -- carrying over -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("1440", 86400), ("90:30", 5430), ("02:00:00", 7200), ("1-12", 129600),
        ("1-12:30", 131400), ("2-0:0:5", 172805), ("soon", 0), ("02:00:00:00", 0),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_reads_them(text, seconds):
    assert carry.walltime(text) == seconds


@pytest.mark.parametrize("adapter", ["OpenStack", "CloudStack", "Kubernetes", "Moab", "Lancium"])
def test_adapters_without_an_equivalent_are_refused_by_name(adapter):
    with pytest.raises(errors.UsageError, match=f"`{adapter}`") as found:
        carry.carry(place(adapter=adapter))
    assert found.value.hint


def test_a_site_without_a_quota_gets_a_bound_and_is_told():
    moved = carry.carry(place(quota=math.inf))
    assert moved.pools["one_m"].maximum == carry.UNBOUNDED
    assert any("no quota" in words for words in moved.lost)


def test_a_site_called_local_gets_another_name():
    assert carry.carry(place(name="local")).name == "tardis_local"


def test_machine_types_that_want_other_accounts_are_told():
    options = {"SubmitOptions": {"long": {"account": "b"}}}
    first = tardis.Machine("m", 1.0, None, None, {"SubmitOptions": {"long": {"account": "a"}}})
    second = tardis.Machine("n", 1.0, None, None, options)
    moved = carry.carry(place(machines=(first, second)))
    assert moved.site.defaults.account == "a"
    assert "SubmitOptions account=b: the site has a for all" in moved.lost


# -- reaching ------------------------------------------------------------------------------------


def test_options_become_words_of_ssh_and_secrets_stay_where_they_are():
    keys = {
        "host": "login", "port": 2222, "username": "me", "client_keys": "~/.ssh/id",
        "password": "S", "known_hosts": None, "proxy_command": "nc x", "made_up": 1,
    }  # fmt: skip
    found = reach("one", Element("!TardisSSHExecutor", (), keys, 1))
    assert found.far
    assert found.settings.splitlines() == [
        "Host one", '    HostName "login"', '    Port "2222"', '    User "me"',
        '    IdentityFile "~/.ssh/id"',
    ]  # fmt: skip
    assert len(found.lost) == 4
    assert not any("S" in words.split() for words in found.lost)


@pytest.mark.parametrize("host", ['a"\n ProxyCommand rm', "a\nb", ["a", {"x": 1}], ""])
def test_nothing_else_is_smuggled_into_the_settings_of_ssh(host):
    found = reach("one", Element("!SSHExecutor", (), {"host": host}, 1))
    assert found.settings == "Host one\n"
    assert len(found.lost) == 1


@pytest.mark.parametrize("key", ["host", "username", "tunnel"])
@pytest.mark.parametrize(
    "text", ["`touch$IFS/x`@y", "a'`touch$IFS/x`'", "$(touch)", "-oX=y", "a b"]
)
def test_no_name_becomes_the_text_of_a_shell(key, text):
    # `ssh` reaches a jump host by a command line that it hands to a shell.
    found = reach("one", Element("!SSHExecutor", (), {key: text}, 1))
    assert found.settings == "Host one\n"
    assert found.lost == (f"executor option `{key}`: `ssh` has its own way",)


@pytest.mark.parametrize(
    "jump", ["bastion", "me@bastion.example.org:2222", "a,me@[2001:db8::1]:22"]
)
def test_ssh_understands_a_jump_host(tmp_path, jump):
    file = tmp_path / "one.ssh"
    file.write_text(reach("one", Element("!SSHExecutor", (), {"tunnel": jump}, 1)).settings)
    told = subprocess.run(
        ["ssh", "-F", file, "-G", "one"], capture_output=True, text=True, check=True
    ).stdout
    assert f"proxyjump {jump}" in told.splitlines()


def test_programs_of_this_machine_need_no_way():
    assert not reach("one", None).far
    assert not reach("one", Element("!TardisShellExecutor", (), {}, 1)).far
    strange = reach("one", Element("!Telepathy", (), {}, 1))
    assert not strange.far
    assert "Telepathy" in strange.lost[0]


# -- the command ---------------------------------------------------------------------------------


def test_files_are_written_once_and_load(root):
    status, said = run(root, TEXT)
    assert status == 0
    written = {str(Path(one).relative_to(root)) for one in said["written"]}
    assert written == {
        "sites/hpc_one.toml", "sites/hpc_one.ssh", "sites/farm.toml", "pools/hpc_one_whole.toml",
        "pools/hpc_one_half.toml", "pools/farm_wn.toml",
    }  # fmt: skip
    site = sites.read(root, "hpc_one")
    assert (site.batch, site.host, site.poll) == ("slurm", "hpc_one", "30s")
    assert (site.defaults.account, site.defaults.constraint) == ("abc", "fast")
    assert 'IdentityFile "/opt/keys/two"' in Path(site.ssh_config).read_text()
    assert sites.read(root, "farm").batch == "htcondor"
    whole, half = files.read(root, "hpc_one_whole"), files.read(root, "hpc_one_half")
    assert (whole.maximum, whole.pilot.cpus, whole.pilot.queue) == (462, 42, "normal")
    assert (whole.pilot.bytes, whole.pilot.seconds) == (256 << 30, 131400.0)
    assert half.pilot.bytes == 5 << 29
    assert isinstance(half.control, files.Outside)
    lost = "\n".join(said["lost"])
    for words in (
        "mfa_config", "StartupCommand", "gres", "drone_minimum_lifetime", "SqliteRegistry",
        "TelegrafMonitoring", "BatchSystem", "jdl", "Disk",
    ):  # fmt: skip
        assert words in lost, words
    assert "SECRET" not in "".join(Path(one).read_text() for one in said["written"]) + lost


def test_no_file_that_is_there_is_changed(root):
    (root / "pools").mkdir()
    mine = root / "pools/farm_wn.toml"
    mine.write_text('site = "other"\nmaximum = 3\n')
    status, said = run(root, TEXT)
    assert status == 0
    assert said["kept"] == [str(mine)]
    assert mine.read_text() == 'site = "other"\nmaximum = 3\n'
    assert run(root, TEXT)[1]["written"] == []


def test_a_name_that_leads_nowhere_is_not_written_through(root):
    (root / "pools").mkdir()
    (root / "pools" / "farm_wn.toml").symlink_to(root / "elsewhere")
    with pytest.raises(errors.Conflict, match=r"farm_wn\.toml"):
        run(root, TEXT)
    assert not (root / "elsewhere").exists()


def test_a_dry_run_writes_nothing(root):
    status, said = run(root, TEXT, dry_run=True)
    assert status == 0
    assert len(said["written"]) == 6
    assert not (root / "sites").exists()


def test_one_site_without_an_equivalent_keeps_no_other_from_being_carried_over(root):
    cloud = "Sites:\n  - {name: cloud, adapter: OpenStack, quota: 10}\n"
    section = "cloud: {MachineTypes: [a], MachineMetaData: {a: {Cores: 1}}}\n"
    status, said = run(root, TEXT.replace("Sites:\n", cloud) + section)
    assert status == 1
    assert "`OpenStack`" in said["refused"][0]
    assert len(said["written"]) == 6


def test_a_file_with_nothing_that_can_be_carried_over_is_refused(root):
    with pytest.raises(errors.UsageError, match="OpenStack") as found:
        run(root, CLOUD)
    assert "pilot run" in found.value.hint
    with pytest.raises(errors.ConfigError, match="no `Sites`"):
        run(root, "pipeline: []\n")
