from __future__ import annotations

import socket

import pytest

from testbed import ports


def test_ports_are_below_those_of_clients_and_never_given_twice():
    given = [ports.free_port() for _ in range(200)]
    assert len(set(given)) == len(given)
    assert set(given) <= set(ports.below_ephemeral())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", ""])
def test_a_port_that_somebody_has_on_any_address_is_not_free(host: str):
    port = ports.free_port()
    assert ports.is_free(port)
    with socket.create_server((host, port)):
        assert not ports.is_free(port)


@pytest.mark.parametrize(
    "told, expected",
    [
        ("32768\t60999\n", range(12_000, 32_768)),
        ("20000 65535", range(12_000, 20_000)),
        # Where nothing is left below, no better place is known.
        ("1024 65535", range(12_000, 32_768)),
    ],
)
def test_the_kernel_says_which_it_hands_out(tmp_path, monkeypatch, told: str, expected: range):
    (tmp_path / "range").write_text(told)
    monkeypatch.setattr(ports, "_EPHEMERAL", tmp_path / "range")
    assert ports.below_ephemeral() == expected
