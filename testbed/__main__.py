"""Bring systems up, say what is up, and take all of it down.

python -m testbed up slurm sshd     until Ctrl-C
python -m testbed up --detach condor
python -m testbed status
python -m testbed down
python -m testbed prepare           what takes minutes, once a machine
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import suppress

from . import detached, journal
from .condor import root
from .errors import NotUp
from .showroom import KINDS, READY, up


def main() -> int:
    """Obey the command line; return the exit status."""
    options = read_options()
    try:
        if options.command == "down":
            detached.down()
        elif options.command == "status":
            status()
        elif options.command == "prepare":
            root.ready()
        elif options.detach:
            return detached.up(options.names)
        else:
            hold(options.names)
    except NotUp as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="bring systems up")
    start.add_argument(
        "names", nargs="+", choices=[*KINDS], metavar="SYSTEM", help=", ".join(KINDS)
    )
    start.add_argument("--detach", action="store_true", help="return once they are up")
    commands.add_parser("status", help="say what is up")
    commands.add_parser("down", help="take down what `up` brought up, and what crashes left")
    commands.add_parser("prepare", help="make the Debian with HTCondor, which takes two minutes")
    return parser.parse_args()


def hold(names: list[str]) -> None:
    """Bring systems up and keep them until a signal comes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), detached.noted(), up(names) as lines:
        print(*lines, READY, sep="\n", flush=True)
        signal.pause()


def status() -> None:
    """Print a line for each bed on this machine."""
    for each in journal.every():
        state = "left over" if each.left_over else "up"
        print(f"{each.name:24} {state}")


if __name__ == "__main__":
    sys.exit(main())
