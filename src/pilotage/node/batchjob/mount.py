"""Mount the job's data from the user's machine while the job runs.

The mount is made outside of the job's sandbox and by the job's own user: no container needs a right
of its own for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

_CONNECT_SECONDS = 30

_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_USER = re.compile(r"[A-Za-z0-9_]+")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_KNOWN = re.compile(r"([A-Za-z0-9_.-]+) ssh-ed25519 [A-Za-z0-9+/=]+( [^\n]*)?")
_CHECKED = {"host": _HOST, "user": _USER, "token": _TOKEN, "known_hosts": _KNOWN}
#: What an order may add; everything else is decided here.
_OPTION = re.compile(
    r"allow_other|allow_root|auto_cache|kernel_cache|direct_io|no_readahead|sync_readdir"
    r"|disable_hardlink|compression=yes|max_conns=[1-8]|dcache_timeout=[0-9]{1,5}"
)
#: A server that went away is looked for again; programs and devices that come from elsewhere lend
#: no right.
_OPTIONS = ("idmap=user", "reconnect", "nosuid", "nodev", "noatime", "fsname=pilotage")

_CONFIG = """Host *
    BatchMode yes
    CheckHostIP no
    ClearAllForwardings yes
    Compression no
    ConnectTimeout {seconds}
    ControlMaster no
    ControlPath none
    ForwardAgent no
    ForwardX11 no
    GlobalKnownHostsFile /dev/null
    HostKeyAlgorithms ssh-ed25519
    HostKeyAlias {alias}
    IdentitiesOnly yes
    IdentityAgent none
    IdentityFile "{folder}/key"
    LogLevel ERROR
    PermitLocalCommand no
    PreferredAuthentications publickey
    ProxyCommand {dial}
    ProxyUseFdpass yes
    ServerAliveCountMax 4
    ServerAliveInterval 15
    StrictHostKeyChecking yes
    UpdateHostKeys no
    UserKnownHostsFile "{folder}/known_hosts"
"""


# The first bytes name the folder, then SSH begins: `ssh` gets the connection itself.
_DIAL = """
import array, socket, sys
host, port, token = sys.argv[1:]
connection = socket.create_connection((host, int(port)), 30)
connection.settimeout(None)
with open(token, "rb") as file:
    connection.sendall(file.read())
given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))]
socket.socket(fileno=1).sendmsg([b" "], given)
"""


class NotMountedError(Exception):
    """The data cannot be mounted here; the text says why."""


def checked(mount: Mapping[str, Any], folder: str) -> str:
    """Refuse what would mean something else to the programs it is given to."""
    path = os.path.normpath(str(mount["path"]))
    if not os.path.isabs(path) or not path.startswith(os.path.normpath(folder) + os.sep):
        raise NotMountedError(f"{path} is not in the folder of this job")
    wrong = [
        name
        for name, pattern in _CHECKED.items()
        if not pattern.fullmatch(str(mount[name]).strip())
    ]
    if wrong or not 0 < int(mount["port"]) < 65536 or str(mount["host"]).startswith("-"):
        raise NotMountedError(
            f"the way to the data is not understood: {', '.join(wrong) or 'port'}"
        )
    bad = [option for option in mount.get("options") or () if not _OPTION.fullmatch(option)]
    if bad:
        raise NotMountedError(f"a mount cannot have the option {bad[0]!r}")
    return path


def sshfs_source(mount: Mapping[str, Any], private: str) -> list[str]:
    """Write down how the data is reached; return the beginning of the command."""
    known, host = str(mount["known_hosts"]).strip(), str(mount["host"])
    port = str(int(mount["port"]))
    python = (sys.executable, "-I", "-S", f"{private}/dial")
    # In that file, `%` begins something that is filled in.
    config = _CONFIG.format(
        alias=known.split()[0],
        dial=shlex.join([*python, host, port, f"{private}/token"]).replace("%", "%%"),
        folder=private.replace("%", "%%"),
        seconds=_CONNECT_SECONDS,
    )
    key = str(mount["key"]).rstrip("\n") + "\n"
    texts = {"key": key, "known_hosts": f"{known}\n", "config": config, "dial": _DIAL}
    for name, text in {**texts, "token": str(mount["token"]).strip()}.items():
        fd = os.open(os.path.join(private, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
    options = ",".join((*_OPTIONS, *(mount.get("options") or ())))
    argv = ["sshfs", "-f", "-F", f"{private}/config", "-p", port, "-o", options]
    # It begins in the folder that is served.
    return [*argv, f"{mount['user']}@{f'[{host}]' if ':' in host else host}:"]


#: How long all of it may take to begin, and how long to end.
_BEGIN_SECONDS = 90.0
_END_SECONDS = 20.0
_BUSY_SECONDS = 10.0
_LOOK_SECONDS = 0.01
_WORDS = 2000

#: Only this job has the folder, so what was read once may be kept.
_ALONE = "auto_cache"
#: The folder is mounted twice, and what is done on one side must be seen on the other.
_SHARED = "auto_cache,dir_cache=no,entry_timeout=0,negative_timeout=0,attr_timeout=0"
#: Rootless podman keeps one view of all mounts for a user. Unless mounts are shared with it, as
#: systemd has them, it does not see what was mounted after it began.
_INSIDE = ("podman", "unshare")

# The scheduler's polite signal goes to all processes of a job: it is for the payload, which may
# still want to write.
_DEAF = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
os.execvp(sys.argv[1], sys.argv[1:])
"""
# The mount must not outlive us, also if we are killed: the process that made it sees that our end
# of the line is gone.
_KEEP = """
import os, subprocess, sys, threading
size = int(sys.argv[1])
child = subprocess.Popen(sys.argv[2 + size:], stdin=subprocess.DEVNULL)
def watch():
    # Not by `sys.stdin`: a process that ends while another thread reads it prints an error.
    while os.read(0, 4096):
        pass
    subprocess.call(sys.argv[2:2 + size], stdin=subprocess.DEVNULL)
    child.kill()
threading.Thread(target=watch, daemon=True).start()
sys.exit(child.wait())
"""


@contextlib.contextmanager
def mounted(item: Mapping[str, Any], folder: str) -> Iterator[str]:
    """Have an item's data mounted below its own folder; yields the mount point, or nothing."""
    mount = item.get("mount")
    if not mount:
        yield ""
        return
    named = checked(mount, folder)
    _check_machine()
    os.makedirs(named, mode=0o700, exist_ok=True)
    # As the kernel names it: there may be links on the way.
    path = os.path.realpath(named)
    # On the node itself: the key has no business on a file system that many machines share.
    private = tempfile.mkdtemp(prefix="pilotage-mount-")
    try:
        source = sshfs_source(mount, private)
        with contextlib.ExitStack() as stack:
            if _podman(item):
                # Were that view made later, it would have a copy of the mount that stays.
                _run([*_INSIDE, "true"], subprocess.DEVNULL)
            stack.enter_context(_served(source, path, _ALONE))
            if _podman(item) and not _is_mounted(path, _INSIDE):
                stack.close()
                stack.enter_context(_served(source, path, _SHARED, _INSIDE))
                stack.enter_context(_served(source, path, _SHARED))
            yield named
    finally:
        shutil.rmtree(private, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(path)


def shown(launch: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Have what is mounted seen in the sandbox of a launch."""
    sandbox = launch.get("sandbox") or {}
    kind = sandbox.get("kind", "none")
    if not path or kind == "none":
        return dict(launch)
    made = {**sandbox, "writable": [*sandbox.get("writable", ()), path]}
    if kind == "podman":
        # Only this user may look at what it mounted, and what makes a container is root there.
        made["user"] = "root"
    return {**launch, "sandbox": made}


def _podman(item: Mapping[str, Any]) -> bool:
    """Return whether the job runs where this user's containers have a view of their own."""
    sandbox = item.get("launch", {}).get("sandbox") or {}
    return sandbox.get("kind") == "podman" and os.geteuid() != 0


def _check_machine() -> None:
    if not shutil.which("sshfs"):
        raise NotMountedError("this node has no `sshfs`, so data cannot be mounted here")
    if not _unmounter():
        raise NotMountedError("this node has no `fusermount3`, so data cannot be mounted here")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise NotMountedError("this node has no usable /dev/fuse, so data cannot be mounted here")


def _unmounter() -> str:
    return shutil.which("fusermount3") or shutil.which("fusermount") or ""


@contextlib.contextmanager
def _served(
    source: list[str], path: str, options: str, inside: tuple[str, ...] = ()
) -> Iterator[None]:
    """Have `sshfs` run: here, or in the view that this user's containers have."""
    deaf = [sys.executable, "-I", "-S", "-c", _DEAF]
    keep = [sys.executable, "-I", "-S", "-c", _KEEP]
    last = [*inside, _unmounter(), "-u", "-z", "--", path]
    argv = [*deaf, *keep, str(len(last)), *last, *inside, *deaf, *source, path, "-o", options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SSH_")}
    # `ssh` starts its proxy by it, and those of users may chatter.
    env["SHELL"] = "/bin/sh"
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=words,
            stderr=words,
            env=env,
            cwd="/",
            start_new_session=True,
        )
        try:
            _wait(process, path, inside, words)
            yield
        finally:
            _end(process, path, inside)


def _wait(
    process: subprocess.Popen[bytes], path: str, inside: tuple[str, ...], words: IO[bytes]
) -> None:
    """Wait until the folder is there."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    while not _there(path, inside):
        if process.poll() is not None:
            raise NotMountedError(f"the data cannot be mounted: {_words(words)}")
        if time.monotonic() > deadline:
            raise NotMountedError(f"the data was not mounted in time: {_words(words)}")
        time.sleep(_LOOK_SECONDS)


def _there(path: str, inside: tuple[str, ...]) -> bool:
    """Return whether what is mounted answers, and not the folder below it after all."""
    # If `sshfs` cannot connect, it takes away what it has mounted, and then the folder answers.
    return _is_mounted(path, inside) and _answers(path, inside) and _is_mounted(path, inside)


def _is_mounted(path: str, inside: tuple[str, ...] = ()) -> bool:
    """Return whether something is mounted, without asking what is mounted there."""
    wanted = path.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    if inside:
        # Into a file: podman may leave a process behind that holds on to what it was given.
        with tempfile.TemporaryFile() as said:
            _run([*inside, "cat", "/proc/self/mountinfo"], said)
            said.seek(0)
            lines = os.fsdecode(said.read()).splitlines()
    else:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    return any(line.split(" ", 5)[4] == wanted for line in lines)


def _answers(path: str, inside: tuple[str, ...]) -> bool:
    """Wait for the first answer: `sshfs` mounts before it connects."""
    if inside:
        return _run([*inside, "stat", path], subprocess.DEVNULL) == 0
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def _words(words: IO[bytes]) -> str:
    words.seek(0)
    text = words.read().decode("utf-8", "replace")
    return " ".join(text[-_WORDS:].split()) or "sshfs says nothing"


def _end(process: subprocess.Popen[bytes], path: str, inside: tuple[str, ...]) -> None:
    """Take the folder away, after all that was written has arrived."""
    patience = _END_SECONDS if _is_mounted(path, inside) else 0.0
    deadline = time.monotonic() + _BUSY_SECONDS
    while _is_mounted(path, inside) and time.monotonic() < deadline:
        _unmount(path, inside)
        time.sleep(_LOOK_SECONDS)
    if _is_mounted(path, inside):
        # Somebody is still in there; it vanishes under their feet.
        _unmount(path, inside, "-z")
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # If it is still there, it ends now, and what it runs does so too.
        process.communicate()


def _unmount(path: str, inside: tuple[str, ...], *options: str) -> None:
    _run([*inside, _unmounter(), "-u", *options, "--", path], subprocess.DEVNULL)


def _run(argv: list[str], said: IO[bytes] | int) -> int:
    nothing = subprocess.DEVNULL
    done = subprocess.run(argv, stdin=nothing, stdout=said, stderr=nothing, check=False, cwd="/")
    return done.returncode
