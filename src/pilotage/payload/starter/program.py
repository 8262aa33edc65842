"""Set up the process that payloads are children of."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from types import FrameType

from .loop import Loop
from .wire import StarterWire
from .workers import scratch_of

_PR_SET_CHILD_SUBREAPER = 36


def main(argv: Sequence[str]) -> None:
    """Take orders from the inherited socket until there is nothing left to do."""
    # Where this is a part of another program, its options come from there.
    import argparse

    parser = argparse.ArgumentParser(prog="starter")
    parser.add_argument("--socket", type=int, required=True, help="inherited stream socket")
    parser.add_argument("--lock", required=True, help="file to hold a lock on while alive")
    parser.add_argument("--slots", type=int, default=0, help="payloads at once; 0 is no limit")
    parser.add_argument("--devices", default="", help="GPUs to lend, with commas between")
    options = parser.parse_args(argv)
    home = os.fsencode(os.getcwd())
    lock = os.path.join(home, os.fsencode(options.lock))
    devices = [name for name in options.devices.split(",") if name]
    with contextlib.suppress(PermissionError):
        os.setsid()
    serve(options.socket, home, lock, options.slots, devices)


def serve(fd: int, home: bytes, lock: bytes, slots: int = 0, devices: Sequence[str] = ()) -> None:
    """Take orders from a socket; the lock tells others that we live."""
    keep_apart({0, 1, 2, fd})
    wake = listen_to_signals()
    # Never closed: the kernel lets go of the lock when this process is no more.
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    wire = StarterWire(fd)
    wire.send({"op": "ready", "pid": os.getpid()})
    Loop(wire, home, lock, slots, devices).run(wake)
    shutil.rmtree(scratch_of(lock), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.unlink(lock)


def keep_apart(fds: set[int]) -> None:
    """Depend no more on the parent's folder and open files, and adopt orphans."""
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in fds:
            # The listing itself had one of them open.
            with contextlib.suppress(OSError):
                os.close(int(name))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot adopt orphans")


def listen_to_signals() -> socket.socket:
    """Deliver signals as bytes on a socket."""
    wake, signalled = socket.socketpair()
    wake.setblocking(False)
    signalled.setblocking(False)
    signal.set_wakeup_fd(signalled.detach(), warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, ignore)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return wake


def ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the loop reads the number from its socket."""
