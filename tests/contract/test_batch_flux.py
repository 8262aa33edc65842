from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import flux
from pilotage.batch.system.model import BatchError
from pilotage.testing.batch.words import KEY, ORDER
from tests.replay.tools import Tools, recorded


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(tmp_path)
    made.put(
        "flux",
        f"""\
case $1 in
    jobs) cat <<'E'
{recorded("flux", "jobs.txt")}
E
    ;;
    submit|batch) echo ƒ2oLkTLb;;
    version) echo 'commands: 0.64.0';;
esac""",
    )
    return made


@pytest.mark.parametrize("nodes, verb", [(1, "submit"), (2, "batch")])
def test_a_job(tools: Tools, nodes: int, verb: str):
    order = msgspec.structs.replace(ORDER, nodes=nodes)
    assert flux.TOOLS.submitted(tools.run(flux.TOOLS.submit(order))) == "68484595712"
    (words,) = tools.calls("flux")
    assert words[0] == verb
    assert f"--job-name={KEY}" in words
    assert words[-1] == f"{ORDER.folder}/script.sh"


def test_a_listing(tools: Tools):
    assert len(flux.TOOLS.listed(tools.run(flux.TOOLS.listing()))) == 13
    assert tools.calls("flux") == [["jobs", "--json", "--count=1000000", "--since=-3600s"]]


def test_a_history(tools: Tools):
    call = flux.TOOLS.history(time.time() - 7200)
    assert call is not None
    assert len(flux.TOOLS.remembered(tools.run(call))) == 13
    (words,) = tools.calls("flux")
    ago = int(words[-1].removeprefix("--since=-").removesuffix("s"))
    assert 7200 <= ago < 7260


def test_an_instance_that_is_away_lists_nothing(tools: Tools):
    tools.put("flux", "echo 'flux-jobs: ERROR: Unable to connect to Flux' >&2; exit 1")
    with pytest.raises(BatchError, match="Unable to connect"):
        flux.TOOLS.listed(tools.run(flux.TOOLS.listing()))


@pytest.mark.parametrize(
    "words, code",
    [
        ("flux-cancel: f2oLkTLb: job is inactive", 0),
        ("flux-cancel: 7: unknown job id", 0),
        ("flux-cancel: Unable to connect to Flux", 1),
    ],
)
def test_what_is_over_is_called_off_in_peace(tools: Tools, words: str, code: int):
    tools.put("flux", f"echo '{words}' >&2; exit 1")
    assert tools.run(flux.TOOLS.cancel(["68484595712", "7"])).exit == code
    assert tools.calls("flux") == [["cancel", "68484595712", "7"]]


def test_the_version(tools: Tools):
    assert "0.64" in tools.run(flux.TOOLS.version()).out
