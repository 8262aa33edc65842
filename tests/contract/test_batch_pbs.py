from __future__ import annotations

import getpass
from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import pbs
from pilotage.batch.system.model import BatchError, Output
from pilotage.testing.batch.words import ORDER
from tests.replay.tools import REPLAY, Tools, recorded

PRO = 'if [ "$1" = --version ]; then echo "pbs_version = 23.06.06"; exit; fi'
TORQUE = 'if [ "$1" = --version ]; then echo "Version: 6.1.2" >&2; exit; fi'
ARRAY = msgspec.structs.replace(ORDER, count=3, cpus=2)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(tmp_path)
    made.put("qsub", "cat > /dev/null; echo '12[].pbs1'")
    made.put("qselect", "echo '101.pbs1'; echo '104[].pbs1'")
    return made


@pytest.fixture
def pro(tools: Tools) -> Tools:
    tools.put("qstat", f'{PRO}\ncat "{REPLAY}/pbs/live.json" | grep -v "^end of listing"')
    return tools


@pytest.fixture
def torque(tools: Tools) -> Tools:
    tools.put("qstat", f'{TORQUE}\ncat "{REPLAY}/pbs/torque.xml" | grep -v "^end of listing"')
    return tools


def test_each_kind_gets_its_own_options(pro: Tools):
    assert pbs.TOOLS.submitted(pro.run(pbs.TOOLS.submit(ARRAY))) == "12[].pbs1"
    pro.put("qstat", TORQUE)
    pro.run(pbs.TOOLS.submit(ARRAY))
    first, second = pro.calls("qsub")
    assert first[:4] == ["-l", "select=1:ncpus=2:mpiprocs=1", "-J", "0-2"]
    assert second[:4] == ["-l", "nodes=1:ppn=2", "-t", "0-2"]
    for words in (first, second):
        assert words[4:6] == ["-N", ORDER.key]
        assert words[-1].startswith(f"{ORDER.folder}/err")


def test_a_listing_of_ones_own(pro: Tools):
    said = pro.run(pbs.TOOLS.listing())
    assert said.exit == 0
    assert len(pbs.TOOLS.listed(said)) == 9
    assert pro.calls("qselect") == [["-u", getpass.getuser()]]
    # Brackets in ids are nothing to the shell.
    assert pro.calls("qstat")[-1] == ["-t", "-f", "-F", "json", "101.pbs1", "104[].pbs1"]


def test_a_listing_of_torque(torque: Tools):
    assert len(pbs.TOOLS.listed(torque.run(pbs.TOOLS.listing(), PBS_QSTAT_NO_COMPLETE="1"))) == 9
    assert torque.calls("qstat")[-1] == ["-t", "-x", "101.pbs1", "104[].pbs1"]


def test_without_jobs_nobody_is_asked_for_all(pro: Tools):
    pro.put("qselect", "exit 0")
    assert pbs.TOOLS.listed(pro.run(pbs.TOOLS.listing())) == []
    assert pro.calls("qstat") == [["--version"]]


def test_one_that_is_gone_meanwhile_is_no_failure(pro: Tools):
    once = f'[ -e "{pro.folder}/once" ] || {{ touch "{pro.folder}/once"; exit 35; }}'
    pro.put("qstat", f"{PRO}\n{once}\ncat <<'E'\n{recorded('pbs', 'live.json')}\nE")
    assert len(pbs.TOOLS.listed(pro.run(pbs.TOOLS.listing()))) == 9


@pytest.mark.parametrize("tool", ["qselect", "qstat"])
def test_a_server_that_is_away_lists_nothing(pro: Tools, tool: str):
    pro.put(tool, f"{PRO}\necho 'cannot connect to server pbs1 (errno=15010)' >&2; exit 255")
    said = pro.run(pbs.TOOLS.listing())
    with pytest.raises(BatchError, match="cannot connect"):
        pbs.TOOLS.listed(said)


def test_a_history(pro: Tools):
    pro.put("qstat", f"{PRO}\ncat <<'E'\n{recorded('pbs', 'past.json')}\nE")
    call = pbs.TOOLS.history(1794801800.0)
    assert call is not None
    assert len(pbs.TOOLS.remembered(pro.run(call))) == 10
    (words,) = pro.calls("qselect")
    assert words == ["-x", "-u", getpass.getuser(), "-s", "FM", "-tm.ge.202611160403"]
    assert pro.calls("qstat")[-1][:2] == ["-x", "-t"]


def test_a_server_without_history(pro: Tools):
    pro.put("qselect", "echo 'qselect: PBS is not configured to maintain job history' >&2; exit 1")
    call = pbs.TOOLS.history(0.0)
    assert call is not None
    assert pbs.TOOLS.remembered(pro.run(call)) == []


def test_a_history_that_fails(pro: Tools):
    pro.put("qselect", "echo 'qselect: cannot connect' >&2; exit 1")
    call = pbs.TOOLS.history(0.0)
    assert call is not None
    with pytest.raises(BatchError, match="cannot connect"):
        pbs.TOOLS.remembered(pro.run(call))


def test_torque_has_no_history(torque: Tools):
    call = pbs.TOOLS.history(0.0)
    assert call is not None
    assert pbs.TOOLS.remembered(torque.run(call)) == []
    assert torque.calls("qselect") == []


@pytest.mark.parametrize(
    "words, code",
    [
        ("qdel: Unknown Job Id 12.pbs1", 0),
        ("qdel: Job 12.pbs1 has finished", 0),
        ("qdel: Request invalid for state of job 12.pbs1", 0),
        ("qdel: cannot connect to server pbs1", 7),
        ("qdel: Unknown Job Id 12.pbs1\nqdel: Unauthorized Request 13.pbs1", 7),
    ],
)
def test_what_is_over_is_called_off_in_peace(tools: Tools, words: str, code: int):
    tools.put("qdel", f"echo '{words}' >&2; exit 7")
    said = tools.run(pbs.TOOLS.cancel(["12.pbs1", "13[4].pbs1"]))
    assert said == Output(code, "", f"{words}\n")
    assert tools.calls("qdel") == [["12.pbs1", "13[4].pbs1"]]


def test_the_version(torque: Tools):
    assert "6.1.2" in torque.run(pbs.TOOLS.version()).out
