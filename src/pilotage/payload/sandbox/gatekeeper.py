#!/usr/bin/python3 -I
"""Run a payload as another user: pilotage-gatekeeper run USER, or sweep USER.

An administrator installs this file as root's and names in a sudo rule who may call it, and for
which users; nothing else can be asked of it on the command line. What to run comes as one line of
JSON on its input. Further lines are `term` and `kill`; the end of its input means `kill`, too.

It trusts its caller no further than this: the payload's directory must be the caller's own, the
user must be neither root nor the caller, and whatever runs has that user's rights at most.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import grp
import json
import os
import pwd
import resource
import select
import signal
import stat
import sys
import time
from typing import Any, NoReturn

_LOWEST_UID = 1000
_LONGEST = 8 << 20
_LOCKS = "/run/pilotage-gatekeeper"
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each gets its own
_LIMITS = {
    "cpu_seconds": resource.RLIMIT_CPU,
    "file_size": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
_NEW_MOUNTS, _NEW_IPC, _NEW_PIDS, _NEW_NET = 0x20000, 0x8000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _RECURSIVE, _MAKE_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_LOOK_SECONDS = 0.25
#: What kills its caller must not end it before the payload.
_DEAF = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
_libc = ctypes.CDLL(None, use_errno=True)


class Caller:
    """The calling user, and the user to run as."""

    def __init__(self, name: str) -> None:
        self.uid = int(os.environ.get("SUDO_UID", "0"))
        self.gid = int(os.environ.get("SUDO_GID", "0"))
        self.user = pwd.getpwnam(name)
        self.groups = os.getgrouplist(name, self.user.pw_gid)
        if os.geteuid() != 0 or self.uid == 0:
            refuse("it must be called through sudo, and not by root")
        if self.user.pw_uid < _LOWEST_UID or self.user.pw_uid == self.uid:
            refuse(f"payloads may not run as {name}")
        if self.gid in self.groups or 0 in self.groups:
            refuse(f"{name} is in a group that can reach others: {grp.getgrgid(self.gid).gr_name}")


def refuse(why: str) -> NoReturn:
    """End without having run anything."""
    sys.stderr.write(f"pilotage-gatekeeper: {why}\n")
    sys.exit(126)


def call(result: int) -> None:
    """Check what a system call returned."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount something."""
    words = (os.fsencode(word) for word in (source, target, kind))
    call(_libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)))


# --- the directory --------------------------------------------------------------------------


def hand_over(folder: int, old: int, new: int, group: int) -> None:
    """Give what is below an open directory, and is `old`'s, to another user.

    A file with a second name may be anywhere, so it stays whose it is.
    """
    for _, names, files, here in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in (*names, *files):
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            try:
                what = os.fstat(fd)
                single = stat.S_ISDIR(what.st_mode) or (
                    stat.S_ISREG(what.st_mode) and what.st_nlink == 1
                )
                if what.st_uid == old and single:
                    os.chown(f"/proc/self/fd/{fd}", new, group)
            finally:
                os.close(fd)


def used(folder: int, uid: int) -> int:
    """Sum the bytes on disk below a directory, and of files that are open but have no name."""
    total = 0
    for _, names, files, here in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in (*names, *files):
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(name, dir_fd=here, follow_symlinks=False).st_blocks * 512
    seen = set()
    for pid in processes(uid):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                what = os.stat(f"/proc/{pid}/fd/{name}")
                if what.st_nlink == 0 and stat.S_ISREG(what.st_mode) and what.st_ino not in seen:
                    seen.add(what.st_ino)
                    total += what.st_blocks * 512
    return total


# --- processes ------------------------------------------------------------------------------


def processes(uid: int) -> list[int]:
    """List the processes of a user that are not dead yet."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid != uid:
                continue
            with open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                    found.append(int(name))
    return found


def ask(init: int, number: int) -> None:
    """Send a signal to all processes in the payload's namespace but the first."""
    with contextlib.suppress(OSError):
        mine = os.readlink(f"/proc/{init}/ns/pid")
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            with contextlib.suppress(OSError):
                if pid != init and os.readlink(f"/proc/{pid}/ns/pid") == mine:
                    os.kill(pid, number)


def sweep(user: pwd.struct_passwd) -> None:
    """Kill all processes of a user until there is none."""
    for _ in range(100):
        found = processes(user.pw_uid)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def lock(name: str) -> int:
    """Mark that a payload of this user runs."""
    os.makedirs(_LOCKS, mode=0o700, exist_ok=True)
    fd = os.open(f"{_LOCKS}/{name}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def leave(held: int, user: pwd.struct_passwd) -> None:
    """Kill what the user has left anywhere, unless another payload of that user runs."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sweep(user)


# --- inside ---------------------------------------------------------------------------------


def furnish(caller: Caller, wish: dict[str, Any], folder: int) -> None:
    """Give the payload folders for temporary files, and a list of processes, of its own."""
    mount("none", "/", "", _RECURSIVE | _MAKE_PRIVATE)
    own = os.fstat(folder)
    kept = {}
    for path in (wish["dir"], *wish["shown"]):
        # Opened here, since what was opened before cannot be mounted in these namespaces.
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        what = os.fstat(fd)
        if what.st_uid == caller.uid or os.path.samestat(what, own):
            kept[path] = fd
    for path in _PRIVATE:
        if not os.path.islink(path):
            mount(
                "tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"mode=1777,size={int(wish['scratch'])}"
            )
    for path, fd in kept.items():
        if path.startswith(tuple(f"{root}/" for root in _PRIVATE)) and not os.path.exists(path):
            show(path, fd)
    mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)


def show(path: str, fd: int) -> None:
    """Mount what is open where it was before."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.makedirs(path, mode=0o755)
    else:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    mount(f"/proc/self/fd/{fd}", path, "", _BIND | _RECURSIVE)


def drop(caller: Caller, wish: dict[str, Any]) -> None:
    """Become the user, with no way back."""
    for name, value in wish["limits"].items():
        if name in _LIMITS:
            resource.setrlimit(_LIMITS[name], (int(value), int(value)))
    os.setgroups(caller.groups)
    os.setresgid(*[caller.user.pw_gid] * 3)
    os.setresuid(*[caller.user.pw_uid] * 3)
    call(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.umask(0o027)


def become(caller: Caller, wish: dict[str, Any]) -> NoReturn:
    """Turn this process into the payload."""
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.closerange(3, 1 << 16)
        os.setsid()
        drop(caller, wish)
        os.chdir(wish["cwd"])
        for number in (*_DEAF, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(wish["argv"][0], wish["argv"], wish["env"])  # noqa: S606 - that is all
    except OSError as error:
        sys.stderr.write(f"pilotage-gatekeeper: {wish['argv'][0]!a}: {error}\n")
        sys.stderr.flush()
    os._exit(127)


def first(caller: Caller, wish: dict[str, Any], folder: int) -> NoReturn:
    """Run as the first process of the namespace: when it ends, nothing inside is left."""
    code = 126
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        call(_libc.unshare(_NEW_MOUNTS | _NEW_IPC | (0 if wish["network"] else _NEW_NET)))
        furnish(caller, wish, folder)
        payload = os.fork()
        if payload == 0:
            become(caller, wish)
        pid = -1
        while pid != payload:
            pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
            while True:
                os.wait()
    except OSError as error:
        sys.stderr.write(f"pilotage-gatekeeper: cannot make its namespace: {error}\n")
        sys.stderr.flush()
    os._exit(128 - code if code < 0 else code)


# --- outside --------------------------------------------------------------------------------


class Gauge:
    """Size of the payload's directory, measured as often as costs little."""

    def __init__(self, folder: int, uid: int, limit: int | None) -> None:
        self._folder, self._uid, self._limit = folder, uid, limit
        self._due = 0.0

    def full(self) -> bool:
        """Return whether the directory holds more than it may."""
        begun = time.monotonic()
        if self._limit is None or begun < self._due:
            return False
        try:
            return used(self._folder, self._uid) > self._limit
        except (OSError, RecursionError):
            # What cannot be measured is there to hide something.
            return True
        finally:
            self._due = time.monotonic() + 10 * (time.monotonic() - begun)


def watch(init: int, ended: int, heard: bytes, gauge: Gauge) -> int:
    """Pass on what the caller says until all has ended; return the exit code."""
    full, line = False, True
    while True:
        ready, _, _ = select.select([ended, 0] if line else [ended], [], [], _LOOK_SECONDS)
        if 0 in ready:
            data = os.read(0, 1 << 12)
            line = bool(data)
            heard += data or b"\nkill\n"
        *words, heard = heard.split(b"\n")
        if b"term" in words:
            ask(init, signal.SIGTERM)
        full = full or gauge.full()
        if b"kill" in words or full:
            os.kill(init, signal.SIGKILL)
        if ended in ready:
            code = os.waitstatus_to_exitcode(os.waitpid(init, 0)[1])
            return 128 + signal.SIGXFSZ if full else 128 - code if code < 0 else code


def read_wish() -> tuple[dict[str, Any], bytes]:
    """Read the first line of the input; return what it asks for, and what came after it."""
    data = b""
    while b"\n" not in data:
        more = os.read(0, 1 << 16) if len(data) < _LONGEST else b""
        if not more:
            refuse("nothing was asked for")
        data += more
    line, _, rest = data.partition(b"\n")
    return json.loads(line), rest


def run(caller: Caller) -> int:
    """Run a payload as the user; return its exit code."""
    wish, heard = read_wish()
    folder = os.open(wish["dir"], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    before = os.fstat(folder)
    if before.st_uid != caller.uid:
        refuse(f"{wish['dir']!a} is not the caller's")
    held = lock(caller.user.pw_name)
    hand_over(folder, caller.uid, caller.user.pw_uid, caller.gid)
    os.fchown(folder, caller.user.pw_uid, caller.gid)
    os.fchmod(folder, 0o2770)
    try:
        # Only the first process inside holds the other end.
        ended, end = os.pipe()
        call(_libc.unshare(_NEW_PIDS))
        init = os.fork()
        if init == 0:
            first(caller, wish, folder)
        os.close(end)
        return watch(
            init, ended, heard, Gauge(folder, caller.user.pw_uid, wish["limits"].get("disk"))
        )
    finally:
        leave(held, caller.user)
        with contextlib.suppress(OSError, RecursionError):
            hand_over(folder, caller.user.pw_uid, caller.uid, caller.gid)
        os.fchown(folder, caller.uid, caller.gid)
        os.fchmod(folder, stat.S_IMODE(before.st_mode))


def main(argv: list[str]) -> int:
    """Do what the two words ask for."""
    if len(argv) != 2 or argv[0] not in ("run", "sweep"):
        refuse("the only ways to call it are: run USER, sweep USER")
    for number in _DEAF:
        signal.signal(number, signal.SIG_IGN)
    try:
        caller = Caller(argv[1])
        if argv[0] == "run":
            return run(caller)
        sweep(caller.user)
    except (KeyError, TypeError, ValueError, OSError) as error:
        refuse(f"{type(error).__name__}: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
