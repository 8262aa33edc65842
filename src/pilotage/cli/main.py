"""Entry point: run a command line and return its exit status."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from pilotage.base import errors
from pilotage.cli.common import HERE, Common, Mode, mode_of_environment

_MEANT = re.compile(r"\s*Did you mean (.*?)\?", re.DOTALL)
_CHOICES = re.compile(r"\s*Available commands: .*", re.DOTALL)
_COMMAND = re.compile(r'^Command ".*?" parameter ')
_UNKNOWN = re.compile(r'Unknown command "([^"]+)"')
#: Commands that are others now.
_MOVED = {"pool serve": "pilotage agent run", "pool hubs": "pilotage agent status"}
_CHOOSE = re.compile(r"\s*Choose from: (.*?)\.?$", re.DOTALL)


def usage_error(found: CycloptsError) -> errors.UsageError:
    """Turn a complaint of the parser into an error with a hint."""
    found.verbose = False
    message = str(found).strip()
    chain = " ".join(["pilotage", *(found.command_chain or ())])
    hint = f"`{chain} --help` shows more"
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
        return "more arguments than the command takes: " + " ".join(f"`{word}`" for word in words)
    return message[:1].lower() + message[1:] if message[1:2].islower() else message


_SOFTWARE = 70
_INTERRUPTED = 130
_BROKEN_PIPE = 141
#: Options of every command that may also stand before it; whether they take a value.
_EVERYWHERE = {"--json": False, "--quiet": False, "-q": False, "--project": True}
#: Options of `submit` that take no value: what follows the first word that is none is the command.
_SUBMIT_FLAGS = frozenset(
    {"--wait", "--propagate", "-n", "--dry-run", "--json", "--quiet", "-q", "-h", "--help"}
)


def main() -> int:
    """Run the command line, and return its exit status."""
    words = sys.argv[1:]
    mode: Mode = "json" if "--json" in words else "table"
    try:
        return run(words)
    except errors.PilotageError as error:
        return _complain(error, mode)
    except CycloptsError as error:
        return _complain(usage_error(error), mode)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; Python would report it again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - the last handler there is
        return _unexpected(error)


def run(words: Sequence[str]) -> int:
    """Find the command that is meant, run it and print its answer."""
    if not words:
        from pilotage.cli.about import OVERVIEW

        sys.stdout.write(OVERVIEW + "\n")
        return 0
    from pilotage.cli.tree import app

    command, bound, _ = app.parse_args(
        _ordered(app, list(words)), print_error=False, exit_on_error=False, verbose=False
    )
    result = command(*bound.args, **bound.kwargs)
    if result is None:
        return 0
    from pilotage.cli import printing

    common: Common = bound.arguments.get("at", HERE)
    return printing.answer(result, common.mode)


def _ordered(app: App, words: list[str]) -> list[str]:
    """Put what stands before the command after it, and shield the words of a submitted command."""
    first: list[str] = []
    while words and words[0].partition("=")[0] in _EVERYWHERE:
        takes = 2 if _EVERYWHERE[words[0].partition("=")[0]] and "=" not in words[0] else 1
        first += words[:takes]
        words = words[takes:]
    if words[:1] == ["submit"]:
        words = ["submit", *_shielded(words[1:])]
    elif words[:1] == ["job"] and words[1:2] == ["submit"]:
        words = ["job", "submit", *_shielded(words[2:])]
    if not first:
        return words
    chain, _, rest = app.parse_commands(words)
    return [*chain, *first, *rest]


def _shielded(words: list[str]) -> list[str]:
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 1 if words[at] in _SUBMIT_FLAGS or "=" in words[at] else 2
    if at >= len(words) or words[at] == "--":
        return words
    return [*words[:at], "--", *words[at:]]


def _complain(error: errors.PilotageError, mode: Mode) -> int:
    from pilotage.cli import printing

    if mode == "table" and os.environ.get("PILOTAGE_OUTPUT") == "json":
        mode = mode_of_environment()
    if os.environ.get("PILOTAGE_DEBUG"):
        import traceback

        traceback.print_exception(error)
    return printing.complain(error, mode)


def _unexpected(error: Exception) -> int:
    if os.environ.get("PILOTAGE_DEBUG"):
        raise error
    sys.stderr.write(
        f"error: {type(error).__name__}: {error}\n"
        "\nhint: this is a mistake in Pilotage; please report it with what "
        "PILOTAGE_DEBUG=1 prints and what `pilotage doctor` says\n"
    )
    return _SOFTWARE
