"""What `ssh` writes, understood."""

from __future__ import annotations

import pytest

from pilotage.base import errors
from pilotage.batch.shell import words
from pilotage.batch.shell.words import TroubleKind

CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Offending ED25519 key in /home/me/.ssh/known_hosts:3
Host key for login has changed and you have requested strict checking.
Host key verification failed.
"""

UNKNOWN = """\
No ED25519 host key is known for login and you have requested strict checking.
Host key verification failed.
"""

FULL = """\
mux_client_request_session: session request failed: Session open refused by peer
kex_exchange_identification: Connection closed by remote host
Connection closed by UNKNOWN port 65535
"""


@pytest.mark.parametrize(
    "said,kind,error",
    [
        (
            "me@login: Permission denied (publickey,keyboard-interactive).",
            TroubleKind.LOGIN,
            "E600",
        ),
        ("Received disconnect: Too many authentication failures", TroubleKind.LOGIN, "E600"),
        (CHANGED, TroubleKind.CHANGED_KEY, "E500"),
        (UNKNOWN, TroubleKind.UNKNOWN_KEY, "E600"),
        (
            "ssh: Could not resolve hostname login: Name or service not known",
            TroubleKind.NAME, "E600",
        ),
        ("ssh: connect to host login port 22: Connection refused", TroubleKind.REFUSED, "E600"),
        ("ssh: connect to host login port 22: Connection timed out", TroubleKind.SILENT, "E600"),
        ("ssh: connect to host login port 22: No route to host", TroubleKind.SILENT, "E600"),
        ("Connection closed by 10.0.0.1 port 22", TroubleKind.CLOSED, "E600"),
        (FULL, TroubleKind.SESSIONS, "E500"),
        ("/x/conf: line 2: Bad configuration option: frob", TroubleKind.SETTINGS, "E300"),
        ("something new", TroubleKind.OTHER, "E600"),
        ("", TroubleKind.OTHER, "E600"),
    ],
)  # fmt: skip
def test_what_ssh_writes_becomes_an_error(said, kind, error):
    trouble = words.understand(said, "login", "kit")
    assert trouble.kind is kind
    assert trouble.error().code == error
    assert isinstance(trouble.error(), errors.PilotageError)
    assert "{" not in trouble.message + trouble.hint


def test_who_is_to_log_in_is_told_how():
    trouble = words.understand("Permission denied (keyboard-interactive).", "login", "kit")
    assert trouble.hint == "`pilotage site login kit`"
    assert "keyboard-interactive" in trouble.message


def test_a_changed_key_is_loud_and_says_where_the_old_one_is():
    trouble = words.understand(CHANGED, "login", "kit")
    assert "HAS CHANGED" in trouble.message
    assert "/home/me/.ssh/known_hosts:3" in trouble.hint


def test_every_kind_is_told():
    assert set(words._TOLD) == set(TroubleKind)
