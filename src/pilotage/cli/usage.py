"""Mistakes in a command line, told in our own form."""

from __future__ import annotations

import re

from cyclopts import CycloptsError

from pilotage.base import errors

_MEANT = re.compile(r"\s*Did you mean (.*?)\?", re.DOTALL)
_CHOICES = re.compile(r"\s*Available commands: .*", re.DOTALL)
_COMMAND = re.compile(r'^Command ".*?" parameter ')
_UNKNOWN = re.compile(r'Unknown command "([^"]+)"')
#: Commands that are others now.
_MOVED = {"pool serve": "pilotage agent run", "pool hubs": "pilotage agent status"}
_CHOOSE = re.compile(r"\s*Choose from: (.*?)\.?$", re.DOTALL)


def error(found: CycloptsError) -> errors.UsageError:
    """Turn a complaint of the parser into an error with a hint."""
    found.verbose = False
    message = str(found).strip()
    chain = " ".join(["pilotage", *(found.command_chain or ())])
    hint = f"`{chain} --help` tells more"
    if chosen := _CHOOSE.search(message):
        hint = f"it may be {chosen[1]}"
    if meant := _MEANT.search(message):
        hint = f"did you mean {_quoted(meant[1])}?"
    if unknown := _UNKNOWN.search(message):
        words = " ".join((*(found.command_chain or ()), unknown[1]))
        hint = f"did you mean `{_MOVED[words]}`?" if words in _MOVED else hint
    for noise in (_MEANT, _CHOICES, _CHOOSE, _COMMAND):
        message = noise.sub("", message)
    return errors.UsageError(_ours(message), hint=hint)


def _quoted(words: str) -> str:
    return f"`{words}`" if '"' not in words else words.replace('"', "`")


def _ours(message: str) -> str:
    message = message.strip().rstrip(".").replace('"', "`")
    if message.startswith("Unused Tokens: "):
        words = re.findall(r"'([^']*)'", message)
        return "more words than the command takes: " + " ".join(f"`{word}`" for word in words)
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
