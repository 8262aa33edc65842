"""Directives in scripts: `#PILOTAGE --cpus 4`, and the common `#SBATCH` ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

import msgspec

from pilotage.base import errors, units

_LINE = re.compile(r"^#(PILOTAGE|SBATCH)(?:\s+(.*))?$")
_SHORT = {"-J": "--job-name", "-c": "--cpus-per-task", "-t": "--time", "-o": "--output",
          "-e": "--error", "-D": "--chdir", "-n": "--ntasks", "-N": "--nodes", "-p": "--partition",
          "-A": "--account", "-G": "--gpus", "-d": "--dependency"}  # fmt: skip
_SBATCH = {"--job-name": "name", "--cpus-per-task": "cpus", "--mem": "memory", "--time": "time",
           "--chdir": "cwd", "--gpus": "gpus", "--gres": "gpus",
           "--priority": "priority"}  # fmt: skip
_GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+)|gpu")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_MEGABYTES = re.compile(r"\d+")


class Directives(msgspec.Struct, frozen=True):
    """What the directives of a script ask for."""

    #: Values by the name of the option of `submit`.
    values: dict[str, str]
    #: Directives that mean nothing here.
    ignored: tuple[str, ...] = ()


def read(script: str, known: Collection[str]) -> Directives:
    """Read the directives between the first line and the first command; `known` are ours."""
    values: dict[str, str] = {}
    ignored: list[str] = []
    for number, line in enumerate(script.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            break
        if not (found := _LINE.fullmatch(line.rstrip())):
            continue
        for option, value in _options(found[2] or "", number):
            if found[1] == "PILOTAGE":
                values[_ours(option, number, known)] = value
            elif (name := _SBATCH.get(option)) is None:
                ignored.append(option)
            else:
                values[name] = _translate(option, value, number)
    return Directives(values, tuple(dict.fromkeys(ignored)))


def _options(line: str, number: int) -> list[tuple[str, str]]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        message = f"line {number} of the script: {error}"
        raise errors.UsageError(message, hint="a quote is not closed") from error
    found: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if word[:2] != "--" and word[:2] in _SHORT and len(word) > 2:
            word, rest = word[:2], word[2:]
            words.insert(0, rest.removeprefix("="))
        option, equals, value = word.partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        found.append((_SHORT.get(option, option), value))
    return found


def _ours(option: str, number: int, known: Collection[str]) -> str:
    name = option.removeprefix("--")
    if name in known:
        return name
    message = f"line {number} of the script: there is no directive `{option}`"
    names = ", ".join(f"`--{one}`" for one in known)
    raise errors.UsageError(message, hint=f"known are {names}")


def _translate(option: str, value: str, number: int) -> str:
    try:
        match option:
            case "--time":
                return str(_minutes(value))
            case "--mem":
                return _memory(value)
            case "--gres" | "--gpus":
                return _gpus(value)
            case _:
                return value
    except ValueError as error:
        message = f"line {number} of the script: cannot read `{option}={value}`"
        raise errors.UsageError(message, hint="write it as Slurm's manual does") from error


def _minutes(value: str) -> float:
    """Read Slurm's times: a bare number is minutes, and `a:b` minutes and seconds."""
    found = _CLOCK.fullmatch(value)
    if not found:
        raise ValueError(value)
    days, first, second, third = found.groups()
    if days:
        return _clock(int(days), int(first), int(second or 0), int(third or 0))
    if third:
        return _clock(0, int(first), int(second or 0), int(third))
    return _clock(0, 0, int(first), int(second or 0))


def _clock(days: int, hours: int, minutes: int, seconds: int) -> float:
    return days * 86400.0 + hours * 3600 + minutes * 60 + seconds


def _memory(value: str) -> str:
    """Read Slurm's sizes: a bare number is MiB, and its units are binary."""
    if _MEGABYTES.fullmatch(value):
        return f"{value}MiB"
    if value[-1:].upper() in "KMGT" and value[:-1].isdigit():
        return f"{value}iB"
    units.size(value)
    return value


def _gpus(value: str) -> str:
    found = _GPUS.fullmatch(value)
    if not found:
        raise ValueError(value)
    return found[1] or "1"
