"""Options on the command line, and the pilot's secret."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

VARIABLE = "PILOTAGE_SECRET"

_PR_SET_DUMPABLE = 4
_SHAPE = re.compile(r"pil_[a-z]_[A-Za-z0-9_-]{8,200}")


class SecretError(Exception):
    """There is no secret that could be used."""


def hide() -> None:
    """Keep processes of the same user from reading our memory, also after a crash."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def take(file: str, env: MutableMapping[str, str]) -> str:
    """Read the secret from where it was left; `forget` removes its file later."""
    inherited = env.pop(VARIABLE, "")
    if file == "-":
        text = sys.stdin.readline()
    elif file:
        text = _read(file)
    else:
        text = inherited
    secret = text.strip()
    if not _SHAPE.fullmatch(secret):
        raise SecretError("the secret is missing or no token; give it with --secret-file FILE or -")
    return secret


def forget(file: str) -> None:
    """Remove the file of a secret that has been used, before any payload could read it."""
    if file and file != "-":
        with contextlib.suppress(OSError):
            os.unlink(file)


def _read(file: str) -> str:
    try:
        with open(file, encoding="ascii", errors="replace") as source:
            return source.read(4096)
    except FileNotFoundError:
        raise SecretError(
            f"there is no file {file}; a pilot that has enrolled removes its token's file, so give "
            f"each pilot a copy of its own, or --secret-file - < FILE"
        ) from None
    except OSError as error:
        raise SecretError(f"cannot read the secret in {file}: {error.strerror}") from error


_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Understand the command line; a wrong one ends the program with status 2."""
    parser = argparse.ArgumentParser(
        prog="pilotage-pilot", description="Offer this node to a hub, and run what it sends."
    )
    add = parser.add_argument
    add("--hub", required=True, metavar="URL", help="such as https://host:8420")
    add(
        "--secret-file",
        default="",
        metavar="FILE",
        help="file with the token, which is removed once it is used; - is stdin",
    )
    add("--ca", default="", metavar="FILE", help="certificates to trust; else those of the node")
    add("--proxy", metavar="URL", help="HTTP proxy; else that of https_proxy; none for none")
    add("--link", default="direct", help="direct, relay:HOST:PORT or spool:DIR")
    add("--insecure", action="store_true", help="allow http:// to other machines")
    add("--work", default="", metavar="DIR", help="where to work; else the batch job's scratch")
    add("--readable", type=_folder, action="append", default=[], metavar="DIR",
        help="folder of the node that payloads in a sandbox may read; repeatable")  # fmt: skip
    add("--writable", type=_folder, action="append", default=[], metavar="DIR",
        help="folder that they may read and write; repeatable")  # fmt: skip
    add("--cache", type=size, default=10 << 30, metavar="SIZE",
        help="size of the cache of inputs, else 10G")  # fmt: skip
    add("--cache-folder", type=_absolute, metavar="DIR",
        help="folder for it that pilots of several nodes may share; else below --work")  # fmt: skip
    add("--keep", action="store_true", help="keep folders that are done with")
    add("--cpus", type=_count, metavar="N", help="cores to offer; else all we may use")
    add("--memory", type=size, metavar="SIZE", help="memory to offer, such as 8G")
    add("--lifetime", type=seconds, metavar="TIME", help="leave after, such as 12h")
    add("--idle", type=seconds, metavar="TIME", help="leave after this time without work, else 20m")
    add("--site-checks", default="", metavar="DIR", help="programs that test the node")
    add("--recheck", type=seconds, metavar="TIME", help="repeat all tests so often")
    add("--attribute", type=attribute, action="append", default=[], metavar="NAME=VALUE",
        help="something that jobs may require; repeatable")  # fmt: skip
    add("--log-limit", type=size, default=10 << 20, metavar="SIZE", help="of a payload's output")
    add("--name", default="", help="name of this pilot")
    return parser.parse_args(words)


def size(text: str) -> int:
    """Read a number of bytes such as `8G`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 8G")
    return int(float(found[1]) * _SIZES[found[2].upper()])


def seconds(text: str) -> float:
    """Read a time such as `12h`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 12h")
    return float(found[1]) * _TIMES[found[2]]


def attribute(text: str) -> tuple[str, Any]:
    """Read `name=value`; numbers and truth values are recognised."""
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    if value in {"true", "false"}:
        return name, value == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return os.path.abspath(text)


def _absolute(text: str) -> str:
    path = os.path.expanduser(text)
    if not os.path.isabs(path):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with / or ~")
    return os.path.normpath(path)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores")
    return int(text)
