"""A site of TARDIS behind SSH, carried over: the login node lets us in by what was written."""

from __future__ import annotations

from pathlib import Path

from pilotage.batch import files
from pilotage.batch.shell.ssh import SshShell
from pilotage.cli.common import Common
from pilotage.cli.pool_import import import_
from testbed.ssh import Sshd

TEXT = """
Sites:
    - {{name: bed.one, adapter: Slurm, quota: 8}}
bed.one:
    executor: !TardisSSHExecutor
        host: {host}
        port: {port}
        username: {user}
        client_keys: [{key}]
        known_hosts: {known}
    MachineTypes: [m]
    MachineMetaData: {{m: {{Cores: 1}}}}
"""


async def test_what_is_written_for_ssh_opens_the_way(sshd: Sshd, tmp_path: Path):
    (tmp_path / "pilotage.toml").touch()
    server = sshd.servers["key"]
    file = tmp_path / "tardis.yml"
    known = sshd.config.with_name("known_hosts")
    file.write_text(
        TEXT.format(
            host=server.host, port=server.port, user=sshd.user.name, key=sshd.folder / "id",
            known=known,
        )
    )  # fmt: skip
    assert import_(file, at=Common(project=tmp_path)).data["lost"] == []
    site = files.read(tmp_path, "bed_one")
    shell = SshShell("bed_one", site.host, tmp_path, settings=site.ssh_config)
    try:
        await shell.connect()
        process = await shell.start(["id", "-un"])
        said, _ = await process.communicate()
    finally:
        await shell.logout()
    assert said.decode().strip() == sshd.user.name
