"""Staging by URL: what is decided without input and output."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs._ext import transfers
from pilotage.base import errors
from pilotage.data.transfer import allow, courier, failures, manifest, plan, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.failures import ErrorClass
from pilotage.data.transfer.headers import digest
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.kind import dav, globus, http_wire, sftp
from pilotage.data.transfer.kind.globus import LocalCollection
from pilotage.data.transfer.manifest import Manifest
from pilotage.data.transfer.model import UNKNOWN, TransferItem
from pilotage.data.transfer.plan import ExistingFile, FileAction, FreeSpace
from pilotage.data.transfer.retrying import (
    Again,
    GiveUp,
    Pause,
    RetryPolicy,
    Tried,
    decide,
    persist,
)
from pilotage.data.transfer.url import Url
from pilotage.testing.clock import ManualClock
from testbed.certificates import Authority

BASE = Url("https", "example.org", path="/data")

# -- addresses -----------------------------------------------------------------------------------


def test_an_address_is_taken_apart():
    found = url.parse("davs://me@Example.ORG:8443/a%20b/%C3%A4")
    assert found == Url("https", "example.org", 8443, "me", "/a b/\u00e4")
    assert url.parse("scp://h/x").scheme == "sftp"
    assert url.parse("file://localhost/x") == Url("file", path="/x")
    assert url.parse("https://[::1]:1/x").place == "[::1]:1"


@pytest.mark.parametrize(
    "bad",
    [
        "", "no-scheme", "http:///x", "https://u:p@h/x", "https://h/a/../b", "https://h/%2e%2e/b",
        "https://h/a%0ab", "https://h/a%00b", "https://h/a b", "https://-oProxyCommand=x/y",
        "sftp://-l@h/x", "sftp://h/x?y", "https://h/x#y", "https://h:99999/x", "https://h\n/x",
        "https://h$(id)/x", "https://" + "h" * 9000,
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_meant_is_refused(bad):
    with pytest.raises(errors.UsageError) as caught:
        url.parse(bad)
    assert ":p@" not in caught.value.message


@given(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1))
def test_what_is_quoted_is_read_back(name):
    path = f"/{name}"
    if {".", ".."} & set(path.split("/")):
        return
    where = Url("https", "h", path=path)
    assert url.parse(f"https://h{where.quoted}").path == path


# -- what is allowed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address, fine",
    [
        ("https://data.example.org/x", True),
        ("https://a.cern.ch/x", True),
        ("https://cern.ch.evil.org/x", False),
        ("https://evilcern.ch/x", False),
        ("http://data.example.org/x", False),
        ("https://other.org:8443/x", True),
        ("https://other.org/x", False),
        ("https://10.1.2.3/x", True),
        ("https://10.2.2.3/x", False),
        ("https://127.0.0.1/x", False),
        ("https://169.254.169.254/x", False),
        ("https://[::1]/x", False),
        ("https://[::ffff:127.0.0.1]/x", False),
    ],
)
def test_only_what_is_listed_is_allowed(address, fine):
    hosts = ("data.example.org", "*.cern.ch", "other.org:8443", "10.1.0.0/16")
    may = Allowed(schemes=("https",), hosts=hosts)
    assert (allow.refusal(may, url.parse(address)) == "") is fine


def test_addresses_of_this_machine_are_refused_unless_they_are_listed():
    for special in ("127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0"):  # noqa: S104 - refused
        address = allow._address(special)
        assert address is not None
        assert allow.refused_address(Allowed(hosts=("*.org",)), address)
        assert not allow.refused_address(Allowed(hosts=(special,)), address)


async def test_a_name_with_one_good_address_gets_that():
    async def resolve(_):
        return ["127.0.0.1", "192.0.2.1"]

    may = Allowed(schemes=("https",), hosts=("example.org",))
    assert await allow.pin(may, BASE, resolve) == "192.0.2.1"


def test_a_folder_is_allowed_by_where_it_really_is(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("/etc")
    may = Allowed(schemes=("file",), read=(str(tmp_path / "in"),))
    assert not allow.refusal(may, Url("file", path=f"{tmp_path}/in/x"))
    assert allow.refusal(may, Url("file", path=f"{tmp_path}/in/link/passwd"))
    assert allow.refusal(may, Url("file", path=f"{tmp_path}/in/x"), write=True)
    assert allow.refusal(may, Url("file", path=f"{tmp_path}/inner"))


# -- what must move ------------------------------------------------------------------------------

ITEM = TransferItem("a", 5, mtime=10**18)
SUM = "0" * 64


@pytest.mark.parametrize(
    "item, there, step",
    [
        (ITEM, None, FileAction.MOVE),
        (ITEM, ExistingFile(5, 10**18), FileAction.HAVE),
        (ITEM, ExistingFile(5, 10**18 + 10**9), FileAction.HAVE),
        (ITEM, ExistingFile(5, 10**18 + 10**10), FileAction.CONFLICT),
        (TransferItem("a", 5, mtime=10**18 + 5), ExistingFile(5, 10**18 + 500), FileAction.HAVE),
        (
            TransferItem("a", 5, mtime=10**18 + 5),
            ExistingFile(5, 10**18 + 6 * 10**8),
            FileAction.CONFLICT,
        ),
        (ITEM, ExistingFile(6, 10**18), FileAction.CONFLICT),
        (ITEM, ExistingFile(5), FileAction.MOVE),
        (ITEM, ExistingFile(5, 10**18, regular=False), FileAction.CONFLICT),
        (TransferItem("a", 5, SUM), ExistingFile(5), FileAction.COMPARE),
        (TransferItem("a", 5, SUM), ExistingFile(6), FileAction.CONFLICT),
        (TransferItem("a", 5, SUM), ExistingFile(5, sha256=SUM), FileAction.HAVE),
        (TransferItem("a", 5, SUM), ExistingFile(5, sha256="1" * 64), FileAction.CONFLICT),
        (TransferItem("a", UNKNOWN), ExistingFile(5, 1), FileAction.MOVE),
    ],
)
def test_a_file_is_compared_with_what_has_its_name(item, there, step):
    assert plan.step(item, there) is step


@given(st.lists(st.integers(-1, 1 << 29), max_size=50))
def test_batches_hold_all_files_in_order_and_are_bounded(sizes):
    items = [TransferItem(str(number), size) for number, size in enumerate(sizes)]
    found = list(plan.batches(items))
    assert [item for batch in found for item in batch] == items
    for batch in found:
        assert len(batch) == 1 or sum(max(0, one.size) for one in batch) <= plan.BATCH_BYTES


def test_many_files_make_many_batches():
    found = list(plan.batches(TransferItem(str(number), 0) for number in range(2500)))
    assert [len(batch) for batch in found] == [1000, 1000, 500]


def test_what_does_not_fit_is_said_before_it_moves():
    plan.check_room("/x", FreeSpace(10**9, 1000), files=10, size=10**8)
    plan.check_room("/x", FreeSpace(10**9), files=10**9, size=0)
    with pytest.raises(errors.Unavailable, match="are needed"):
        plan.check_room("/x", FreeSpace(10**9, 1000), files=10, size=10**9)
    with pytest.raises(errors.Unavailable, match="1000 more files"):
        plan.check_room("/x", FreeSpace(10**9, 1000), files=1000, size=1)


# -- manifests -----------------------------------------------------------------------------------


def test_a_manifest_is_read_as_it_was_written():
    made = Manifest(BASE, folder=True)
    items = [TransferItem("a\udcff\nb", 1, SUM), TransferItem("c/d", 0, executable=True)]
    for item in items:
        made.add(item)
    file = io.BytesIO()
    made.write(file)
    file.seek(0)
    found = manifest.read(BASE, file)
    assert list(found) == items == list(found)
    assert found.digest == made.digest


@pytest.mark.parametrize("name", ["../a", "/a", "a//b", "a/../b", ".", "", "a\0b", "a/."])
def test_a_name_that_leads_out_is_refused(name):
    with pytest.raises(errors.Denied):
        Manifest(BASE, folder=True).add(TransferItem(name, 1))


def test_a_list_of_many_files_does_not_stay_in_memory():
    made = Manifest(BASE, folder=True)
    for number in range(20_000):
        made.add(TransferItem(f"folder/{number:060}", 1))
    assert vars(made._spool)["_rolled"]
    assert sum(item.size for item in made) == made.files == 20_000


# -- when to try again ---------------------------------------------------------------------------

POLICY = RetryPolicy(delay=2, factor=2, longest=60, jitter=0.5, attempts=4, deadline=1000)


def test_waits_grow_with_chance_up_to_the_longest():
    tried, waits = Tried(0.0), []
    patient = RetryPolicy(delay=2, longest=60, attempts=99, deadline=10**6)
    for _ in range(12):
        after = decide(patient, tried, ErrorClass.TRANSIENT, now=0.0, dice=random.Random(1))
        assert isinstance(after, Again)
        waits.append(after.at)
        tried = after.tried
    assert waits == sorted(waits)
    assert 1 <= waits[0] <= 2
    assert 30 <= waits[-1] <= 60


def test_what_is_permanent_is_not_tried_again():
    after = decide(POLICY, Tried(0.0), ErrorClass.PERMANENT, now=0.0, dice=random.Random(1))
    assert isinstance(after, GiveUp)


def test_a_credential_is_waited_for_until_the_deadline():
    after = decide(POLICY, Tried(5.0), ErrorClass.CREDENTIAL, now=9.0, dice=random.Random(1))
    assert after == Pause(1005.0, Tried(5.0))


def test_attempts_in_a_row_and_the_deadline_end_it():
    dice = random.Random(1)
    last = decide(POLICY, Tried(0.0, 3), ErrorClass.TRANSIENT, now=0.0, dice=dice)
    assert isinstance(last, GiveUp)
    assert "4 attempts" in last.why
    goes_on = decide(POLICY, Tried(0.0, 3), ErrorClass.TRANSIENT, now=0.0, dice=dice, progress=True)
    assert isinstance(goes_on, Again)
    assert goes_on.tried.futile == 0
    late = decide(POLICY, Tried(0.0), ErrorClass.TRANSIENT, now=1000.0, dice=dice)
    assert isinstance(late, GiveUp)
    near = decide(POLICY, Tried(0.0), ErrorClass.TRANSIENT, now=999.9, dice=dice)
    assert isinstance(near, GiveUp)


async def test_hours_of_trouble_take_no_time_with_a_clock_of_ones_own():
    clock, tries = ManualClock(), iter(range(3))

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    async def act(_):
        if next(tries, None) is not None:
            raise errors.Unavailable("busy")
        return clock.now()

    start = clock.now()
    end = await persist(act, POLICY, clock=clock, dice=random.Random(1), sleep=sleep)
    assert 3 < end - start < 60


async def test_no_other_credential_ends_at_the_deadline():
    clock = ManualClock()

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    async def act(_):
        raise errors.NeedsCredential("expired")

    start = clock.now()
    with pytest.raises(errors.NeedsCredential) as caught:
        await persist(act, POLICY, clock=clock, dice=random.Random(1), sleep=sleep)
    assert clock.now() - start >= 1000
    assert "no other credential" in caught.value.__notes__[-1]


# -- what programs and servers say ---------------------------------------------------------------


@pytest.mark.parametrize(
    "said, kind",
    [
        ("me@h: Permission denied (publickey).", errors.NeedsCredential),
        ("@ERROR: auth failed on module data", errors.NeedsCredential),
        ("Auth failed: No protocols left to try", errors.NeedsCredential),
        ("[3011] Unable to locate /x; no such file or directory", errors.NotFound),
        ("@ERROR: Unknown module 'x'", errors.NotFound),
        ("[3010] Unable to open /x; permission denied", errors.Denied),
        ("Host key verification failed.", errors.Denied),
        ("write failed: No space left on device (28)", errors.Unavailable),
        ("Connection reset by peer", errors.Unavailable),
        ("", errors.Unavailable),
    ],
)
def test_what_a_program_says_is_classed(said, kind):
    assert type(failures.of_words("h", said)) is kind


def test_every_error_has_a_class():
    assert failures.classify(errors.Unavailable("")) is ErrorClass.TRANSIENT
    assert failures.classify(errors.TimedOut("")) is ErrorClass.TRANSIENT
    assert failures.classify(errors.NeedsCredential("")) is ErrorClass.CREDENTIAL
    for one in (errors.NotFound, errors.Denied, errors.Conflict, errors.Unsure, errors.UsageError):
        assert failures.classify(one("")) is ErrorClass.PERMANENT


def test_a_digest_is_read_in_both_ways():
    both = {"repr-digest": "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"}
    assert digest(both) == SUM
    assert digest({"digest": "SHA-256=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}) == SUM
    assert digest({"digest": "adler32=1234"}) == digest({"repr-digest": "sha-256=:AAAA:"}) == ""


def test_certificates_are_read_once_for_each_version_of_their_files(tmp_path):
    trusted = tmp_path / "ca.pem"
    shutil.copy(Authority(tmp_path / "old").certificate, trusted)
    given = Credentials(authorities=str(trusted))
    before = http_wire._context(given)
    assert http_wire._context(given) is before
    assert http_wire._context(Credentials()) is not before
    shutil.copy(Authority(tmp_path / "new").certificate, trusted)
    after = http_wire._context(given)
    assert before.get_ca_certs(binary_form=True) != after.get_ca_certs(binary_form=True)


async def test_a_connection_that_is_reset_at_once_is_tried_again():
    @contextlib.asynccontextmanager
    async def reset():
        # What httpcore raises when a connection has lost its socket before it is looked at.
        raise AttributeError("'NoneType' object has no attribute 'getpeername'")
        yield

    async with contextlib.AsyncExitStack() as stack:
        with pytest.raises(errors.Unavailable, match="getpeername"):
            await http_wire.begin(stack, reset(), url.parse("https://data.example.org/x"))


def test_a_listing_with_entities_is_refused():
    with pytest.raises(errors.Denied, match="entities"):
        list(dav.entries(b'<!DOCTYPE x [<!ENTITY a "b">]><x/>', "/data"))


# -- kinds without a server here -----------------------------------------------------------------


def test_ssh_is_called_without_a_shell_or_a_terminal():
    argv = sftp.command(url.parse("sftp://me@h:2222/x"))
    assert argv[-4:] == ["-s", "--", "h", "sftp"]
    assert argv[argv.index("-l") + 1] == "me"
    assert "BatchMode=yes" in argv


def test_globus_gets_the_same_request_for_the_same_key(tmp_path):
    source, target = ("from", "/a"), ("to", "/b")
    made = globus.submission("job-7.1", source, target, ["x", "s/y"])
    assert made == globus.submission("job-7.1", source, target, ["x", "s/y"])
    assert made["submission_id"] == globus.submission_id("job-7.1") != globus.submission_id("job-8")
    assert [one["destination_path"] for one in made["DATA"]] == ["/b/x", "/b/s/y"]
    assert LocalCollection("to", str(tmp_path)).path(f"{tmp_path}/job/7") == "/job/7"
    with pytest.raises(errors.Denied):
        LocalCollection("to", str(tmp_path)).path("/etc")


async def test_a_scheme_that_is_not_known_is_refused_with_those_that_are():
    old = Courier(Allowed(schemes=("gsiftp",), hosts=("h",)))
    with pytest.raises(errors.UsageError) as caught:
        await old.look("gsiftp://h/d")
    assert "https" in caught.value.hint


# -- the page ------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "transfers.md"


def test_the_table_on_the_page_is_what_the_kinds_say():
    assert transfers.table() in PAGE.read_text()


def test_every_scheme_policy_and_credential_is_on_the_page():
    words = PAGE.read_text()
    names = [*courier.flags(), *url.SAME]
    for owner in (Allowed, Credentials, RetryPolicy):
        names += owner.__struct_fields__
    assert [name for name in names if f"`{name}`" not in words] == []
