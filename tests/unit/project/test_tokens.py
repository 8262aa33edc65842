"""Tokens: who may do what, for how long, how often; and how the hub's port is encrypted."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pilotage.base import errors
from pilotage.hub import tls
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from pilotage.store import Db, connect
from pilotage.testing.clock import ManualClock

HOUR = 3600.0
EVERYWHERE = "0.0.0.0"  # noqa: S104 - never listened on


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    opened = connect(tmp_path / "store.db")
    yield opened
    opened.close()


def mint(
    db: Db, scope: TokenScope = TokenScope.USER, now: float = 0.0, uses: int | None = None
) -> str:
    with db.transaction():
        site = "kit" if scope is TokenScope.AGENT else ""
        return tokens.mint(db, scope, "anna", now=now, lifetime=HOUR, uses=uses, site=site)[0]


def stored(db: Db) -> str:
    return repr(db.rows("token_list", most=10)) + repr(
        db._connection.execute("SELECT * FROM token").fetchall()
    )


def test_a_token_says_what_it_is_for_and_the_store_keeps_only_its_digest(db):
    secret = mint(db, TokenScope.ENROL)
    assert secret.startswith("pil_e_")
    assert len(secret) == 6 + 43
    assert secret not in stored(db)
    assert secret[6:] not in stored(db)
    grant = tokens.look(db, secret, 1.0)
    assert (grant.scope, grant.owner) == (TokenScope.ENROL, "anna")


@pytest.mark.parametrize(
    "secret", ["", "x", "pil_u_", "pil_u_" + "a" * 43, "pil_x_" + "a" * 43, "\udc80", "é" * 49]
)
def test_what_is_no_token_is_refused(db, secret):
    mint(db)
    with pytest.raises(errors.Denied, match="wrong or revoked"):
        tokens.look(db, secret, 1.0)


def test_a_token_ends_when_it_expires_or_is_revoked(db):
    secret = mint(db)
    assert tokens.look(db, secret, HOUR - 1).id == 1
    with pytest.raises(errors.Denied, match="expired"):
        tokens.look(db, secret, HOUR)
    with db.transaction():
        tokens.revoke(db, 1, 5.0)
        tokens.revoke(db, 1, 6.0)
    with pytest.raises(errors.Denied, match="revoked"):
        tokens.look(db, secret, 6.0)
    with pytest.raises(errors.NotFound), db.transaction():
        tokens.revoke(db, 2, 5.0)


def test_a_single_use_is_spent_with_the_transaction_that_used_it(db):
    secret = mint(db, TokenScope.ENROL, uses=1)
    db._connection.execute("BEGIN IMMEDIATE")
    tokens.consume(db, secret, TokenScope.ENROL, 1.0)
    db._connection.execute("ROLLBACK")
    with db.transaction():
        assert tokens.consume(db, secret, TokenScope.ENROL, 1.0).owner == "anna"
    with pytest.raises(errors.Denied, match="used up"), db.transaction():
        tokens.consume(db, secret, TokenScope.ENROL, 1.0)


def test_a_token_without_a_number_of_uses_may_be_used_again(db):
    secret = mint(db, TokenScope.SITE)
    for _ in range(3):
        with db.transaction():
            tokens.consume(db, secret, TokenScope.ENROL, 1.0)


@pytest.mark.parametrize("scope", [TokenScope.ADMIN, TokenScope.USER, TokenScope.READ])
def test_only_tokens_for_pilots_enrol(db, scope):
    secret = mint(db, scope)
    with pytest.raises(errors.Denied, match="cannot enrol"), db.transaction():
        tokens.consume(db, secret, TokenScope.ENROL, 1.0)


COVERED = {
    TokenScope.ADMIN: {TokenScope.ADMIN, TokenScope.USER, TokenScope.READ, TokenScope.POOL},
    TokenScope.USER: {TokenScope.USER, TokenScope.READ, TokenScope.POOL},
    TokenScope.READ: {TokenScope.READ, TokenScope.POOL},
    TokenScope.SITE: {TokenScope.SITE, TokenScope.ENROL},
    TokenScope.ENROL: {TokenScope.ENROL},
    TokenScope.POOL: {TokenScope.POOL},
    TokenScope.AGENT: {TokenScope.AGENT},
}


@pytest.mark.parametrize("scope", list(TokenScope))
def test_a_scope_covers_these_and_no_others(db, scope):
    grant = tokens.look(db, mint(db, scope), 1.0)
    assert {one for one in TokenScope if grant.covers(one)} == COVERED[scope]


def test_a_token_of_a_factory_says_what_takes_its_place(db):
    with pytest.raises(errors.Denied) as caught:
        tokens.look(db, "pil_f_" + "x" * 43, 0.0)
    assert "pilotage token new agent --site" in caught.value.hint


def test_pools_are_steered_by_admins_and_by_tokens_for_them_alone(db):
    def steers(scope: TokenScope, pool: str = "") -> list[bool]:
        with db.transaction():
            secret, _ = tokens.mint(db, scope, "anna", now=0.0, lifetime=HOUR, pool=pool)
        grant = tokens.look(db, secret, 1.0)
        return [grant.steers("burst"), grant.steers("other")]

    assert steers(TokenScope.ADMIN) == [True, True]
    assert steers(TokenScope.POOL) == [True, True]
    assert steers(TokenScope.POOL, "burst") == [True, False]
    assert (
        steers(TokenScope.USER)
        == steers(TokenScope.READ)
        == steers(TokenScope.SITE, "burst")
        == [False] * 2
    )


def test_a_user_acts_for_itself_and_an_admin_for_all(db):
    anna = tokens.look(db, mint(db), 1.0)
    assert anna.acts_for("anna")
    assert not anna.acts_for("physics/anna")
    assert not anna.acts_for("")
    assert tokens.look(db, mint(db, TokenScope.ADMIN), 1.0).acts_for("bert")
    assert not tokens.look(db, mint(db, TokenScope.READ), 1.0).acts_for("anna")


def test_the_gate_hears_of_a_revocation_at_once_here_and_soon_from_elsewhere(db):
    clock, ticks = ManualClock(1.0), [0.0]
    gate = tokens.TokenGate(connect(db.path, readonly=True), clock.now, lambda: ticks[0])
    first, second = mint(db), mint(db)
    for secret in (first, second):
        assert gate.check(secret, TokenScope.READ).owner == "anna"
    with db.transaction():
        tokens.revoke(db, 1, 2.0)
        tokens.revoke(db, 2, 2.0)
    assert gate.check(first, TokenScope.READ).id == 1
    ticks[0] = tokens.FRESH
    with pytest.raises(errors.Denied):
        gate.check(first, TokenScope.READ)
    ticks[0] = 0.0
    assert gate.check(second, TokenScope.READ).id == 2
    gate.forget()
    with pytest.raises(errors.Denied):
        gate.check(second, TokenScope.READ)
    gate._db.close()


def test_the_gate_does_not_remember_beyond_the_end_nor_what_it_refused(db):
    clock = ManualClock(0.0)
    gate = tokens.TokenGate(db, clock.now, lambda: 0.0)
    secret = mint(db)
    with pytest.raises(errors.Denied, match="not enough"):
        gate.check(secret, TokenScope.ADMIN)
    assert gate.check(secret, TokenScope.USER).id == 1
    clock.advance(HOUR)
    with pytest.raises(errors.Denied, match="expired"):
        gate.check(secret, TokenScope.USER)


def test_this_machine_has_one_admin_token_that_only_we_can_read(db, tmp_path):
    with db.transaction():
        secret = tokens.at_home(db, tmp_path, 0.0)
        assert tokens.at_home(db, tmp_path, 1.0) == secret
    file = tmp_path / tokens.FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() == secret
    with db.transaction():
        tokens.revoke(db, tokens.look(db, secret, 1.0).id, 1.0)
        fresh = tokens.at_home(db, tmp_path, 2.0)
    assert fresh != secret
    assert tokens.look(db, fresh, 2.0).scope is TokenScope.ADMIN


# -- encryption ------------------------------------------------------------------------------------


class Hub(msgspec.Struct):
    host: str = "127.0.0.1"
    tls: str = "auto"
    tls_cert: str = ""
    tls_key: str = ""
    names: tuple[str, ...] = ()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_what_stays_on_this_machine_is_not_encrypted_unless_asked_for(tmp_path, host):
    assert tls.context(Hub(host), tmp_path) is None
    assert tls.context(Hub(host, "off"), tmp_path) is None
    assert tls.authority(Hub(host), tmp_path) is None


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1", "hub.example.org", ""])
def test_tokens_never_leave_the_machine_in_the_clear(tmp_path, host):
    with pytest.raises(errors.ConfigError, match="in the clear") as caught:
        tls.context(Hub(host, "off"), tmp_path)
    assert caught.value.hint


def test_a_certificate_needs_its_key(tmp_path):
    with pytest.raises(errors.ConfigError, match="needs its key"):
        tls.context(Hub(tls_cert="a.pem"), tmp_path)


def test_a_certificate_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "a.pem").write_text("no")
    with pytest.raises(errors.ConfigError, match=r"a\.pem"):
        tls.context(Hub(tls_cert="a.pem", tls_key="a.pem"), tmp_path / "state")


@pytest.mark.needs("openssl")
def test_names_that_came_after_the_certificate_are_told(tmp_path, caplog):
    state = tmp_path / ".pilotage"
    state.mkdir()
    tls.context(Hub(EVERYWHERE, names=("hub.example.org", "2001:db8::1")), state)
    tls.context(Hub(EVERYWHERE, names=("Hub.example.org", "2001:DB8:0::1")), state)
    assert not caplog.text
    tls.context(Hub(EVERYWHERE, names=("hub.example.org", "192.0.2.7")), state)
    assert "does not name 192.0.2.7, so" in caplog.text


def test_a_certificate_is_made_once_for_all_names_of_the_machine(tmp_path):
    settings = Hub(EVERYWHERE, names=("hub.example.org", "no;name"))
    found = tls.context(settings, tmp_path)
    assert found is not None
    assert found.minimum_version is ssl.TLSVersion.TLSv1_2
    file = tls.authority(settings, tmp_path)
    assert file is not None
    key = tmp_path / tls.FOLDER / "key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = file.read_bytes()
    tls.context(settings, tmp_path)
    assert file.read_bytes() == before
    client = ssl.create_default_context(cafile=str(file))
    names = dict(client.get_ca_certs()[0])["subjectAltName"]
    assert ("DNS", "localhost") in names
    assert ("IP Address", "127.0.0.1") in names
    assert ("DNS", "hub.example.org") in names
    assert "no;name" not in str(names)


@pytest.mark.needs("openssl")
def test_who_asks_for_it_is_encrypted_on_this_machine_too(tmp_path):
    settings = Hub(tls="on")
    assert tls.context(settings, tmp_path) is not None
    assert tls.authority(settings, tmp_path) == tmp_path / tls.FOLDER / "certificate.pem"


@pytest.mark.needs("openssl")
def test_the_certificate_of_the_user_is_used_on_this_machine_too(tmp_path):
    tls.context(Hub(EVERYWHERE), tmp_path)
    folder = tmp_path / tls.FOLDER
    mine = Hub(tls_cert=f"{folder}/certificate.pem", tls_key=f"{folder}/key.pem")
    assert tls.context(mine, tmp_path / "other") is not None
    assert tls.authority(mine, tmp_path) is None


KEYS = [f"pil_g_{letter * 43}" for letter in "kln"]


def admit(db: Db, secret: str, key: str, site: str = "kit", now: float = 1.0) -> tokens.Grant:
    with db.transaction():
        return tokens.admit(db, secret, key, site, now)


def test_an_agent_enrols_once_and_goes_on_with_keys_of_its_own(db):
    token = mint(db, TokenScope.AGENT)
    assert token.startswith("pil_g_")
    number = admit(db, token, KEYS[0]).id
    with pytest.raises(errors.Denied, match="wrong or revoked"):
        admit(db, token, KEYS[1])
    # The same key again, another one, and no more the one before.
    assert admit(db, KEYS[0], KEYS[0]).id == number
    assert admit(db, KEYS[0], KEYS[1]).id == number
    with pytest.raises(errors.Denied, match="wrong or revoked"):
        admit(db, KEYS[0], KEYS[0])
    assert tokens.look(db, KEYS[1], 2.0).site == "kit"
    assert KEYS[1] not in stored(db)


def test_the_key_of_an_agent_ends_when_it_is_revoked_or_not_renewed(db):
    number = admit(db, mint(db, TokenScope.AGENT), KEYS[0]).id
    late = 1.0 + tokens.AGENT_S
    admit(db, KEYS[0], KEYS[0], now=late - 1)
    assert tokens.look(db, KEYS[0], late + 1).id == number
    with pytest.raises(errors.Denied, match="expired"):
        tokens.look(db, KEYS[0], late + tokens.AGENT_S)
    with db.transaction():
        tokens.revoke(db, number, 5.0)
    with pytest.raises(errors.Denied, match="revoked"):
        admit(db, KEYS[0], KEYS[1], now=6.0)


def test_a_site_has_one_agent_and_a_token_is_for_one_site(db):
    admit(db, mint(db, TokenScope.AGENT), KEYS[0])
    token = mint(db, TokenScope.AGENT)
    with pytest.raises(errors.Denied, match="is for the site `kit`"):
        admit(db, token, KEYS[1], site="mira")
    assert tokens.look(db, KEYS[0], 2.0).site == "kit"
    admit(db, token, KEYS[1])
    with pytest.raises(errors.Denied, match="revoked"):
        tokens.look(db, KEYS[0], 2.0)


@pytest.mark.parametrize("scope", [one for one in TokenScope if one is not TokenScope.AGENT])
def test_no_other_token_is_an_agent(db, scope):
    with pytest.raises(errors.Denied, match="not for an agent"):
        admit(db, mint(db, scope), KEYS[0], site="")


@pytest.mark.parametrize("key", ["", "x", "pil_g_" + "k" * 42, "pil_g_" + "k" * 42 + "\n"])
def test_a_key_that_nobody_could_show_again_is_refused(db, key):
    token = mint(db, TokenScope.AGENT)
    with pytest.raises(errors.UsageError, match="form"):
        admit(db, token, key)
    admit(db, token, KEYS[0])


@pytest.mark.parametrize("site", ["", "kit,mira", "a b", "../x", "kit\n", "x" * 200])
def test_the_token_of_an_agent_names_one_site(db, site):
    with pytest.raises(errors.UsageError, match="one site"):
        tokens.mint(db, TokenScope.AGENT, "", now=0.0, lifetime=HOUR, site=site)
