"""Start a program with resource limits: `bounded.py cpu=10 as=1000000 -- PROGRAM ARGS…`.

It is run as a script, and becomes the program: limits set between fork and exec in a process with
threads can hang it.
"""

from __future__ import annotations

import os
import resource
import sys

_LIMITS = {
    "cpu": resource.RLIMIT_CPU, "as": resource.RLIMIT_AS, "fsize": resource.RLIMIT_FSIZE,
    "nofile": resource.RLIMIT_NOFILE, "core": resource.RLIMIT_CORE,
}  # fmt: skip


def main(words: list[str]) -> None:
    """Set the limits and become the program."""
    at = words.index("--")
    for word in words[:at]:
        name, _, value = word.partition("=")
        resource.setrlimit(_LIMITS[name], (int(value), int(value)))
    os.umask(0o077)
    program = words[at + 1]
    os.execv(program, [program, *words[at + 2 :]])  # noqa: S606 - there is no shell, on purpose


if __name__ == "__main__":
    main(sys.argv[1:])
