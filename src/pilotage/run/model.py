"""Data types of a payload: the process to start, and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec


class EndReason(StrEnum):
    """The reason why a payload is over."""

    #: It ended by itself; `exit` holds its code.
    EXITED = "exited"
    #: A signal that we did not send ended it.
    SIGNALLED = "signalled"
    #: It used up its wall time and was stopped.
    TIMEOUT = "timeout"
    #: Its process group used more memory than it may and was killed.
    MEMORY = "memory"
    #: It wrote more into its directory than it may and was killed.
    DISK = "disk"
    #: It was stopped on request.
    STOPPED = "stopped"
    #: No process came into being.
    NOT_STARTED = "not_started"
    #: The starter died, so its end was not observed; nothing of it is left running.
    LOST = "lost"


class Sandbox(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The isolation of a payload from the rest of the machine."""

    #: `none`, `bubblewrap`, `podman`, `apptainer` or `user`.
    kind: str = "none"
    #: The container image, for podman and apptainer.
    image: str = ""
    #: The user of the operating system to become, for `user`; with podman, `root` means that the
    #: user who runs it is root inside, without the rights of one.
    user: str = ""
    #: Folders that the payload may read, and those it may write beside its own.
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    #: Whether it may use the network.
    network: bool = True


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start; text may hold undecodable bytes as `os.fsdecode` gives them."""

    #: The name of the attempt, "<job>.<attempt>"; no other payload of this starter has it.
    key: str
    #: The program and its arguments; a bare program name is looked up in the PATH of `env`.
    argv: tuple[str, ...]
    #: The environment of the process, to which PILOTAGE_KEY and PILOTAGE_STARTER are added.
    env: dict[str, str]
    #: Whether the environment of the starter lies beneath it; else it is the whole.
    inherit: bool = False
    #: The directory in which the process begins; empty for a worker with a folder of its own.
    cwd: str
    #: The attempt directory: the starter makes it, and it must not be there before.
    dir: str
    #: Texts by plain file name, written into `dir` before the process begins.
    files: dict[str, str] = {}
    #: The wall time it may use, in seconds.
    timeout: float | None = None
    #: The time between a polite signal and the deadly one, in seconds.
    grace: float = 10.0
    #: The resident memory that its processes may use together, in bytes.
    memory: int | None = None
    #: Kernel limits by name: cpu_seconds, disk, file_size, open_files, processes.
    limits: dict[str, int] = {}
    #: Its isolation from the rest of the machine.
    sandbox: Sandbox | None = None
    #: GPUs that it is lent.
    gpus: int = 0
    #: The worker that stays, which this is for; empty means a process of its own.
    warm: str = ""
    #: Whether `result.json` in `dir` is part of the report of its end.
    result: bool = False


class Usage(msgspec.Struct, frozen=True):
    """The resources used by a payload and the children it waited for."""

    #: The time from start to end, in seconds.
    wall: float
    #: The processor time in user mode, in seconds.
    cpu_user: float
    #: The processor time in the kernel, in seconds.
    cpu_system: float
    #: The peak of resident memory in bytes, never less than that of the starter itself.
    max_rss: int
    #: The bytes read from storage, so not those that were in memory already.
    read_bytes: int
    #: The bytes that went to storage.
    written_bytes: int


class Started(msgspec.Struct, frozen=True):
    """The news that a payload runs."""

    #: The name of the attempt.
    key: str
    #: Its process, which is also its process group.
    pid: int
    #: When it began, in seconds since 1970.
    time: float


class Ending(msgspec.Struct, frozen=True):
    """The evidence of how a payload ended."""

    #: The name of the attempt.
    key: str
    #: When it ended, in seconds since 1970.
    time: float
    #: The exit code, if it ended by exiting.
    exit: int | None
    #: The signal, if a signal ended it.
    signal: int | None
    #: Why it is over.
    reason: EndReason
    #: The same for people.
    message: str
    #: What it used, if it ran and its end was seen.
    usage: Usage | None
    #: What the function returned, if that was asked for.
    result: Any = None

    @property
    def ok(self) -> bool:
        """Return whether it ended by itself and with success."""
        return self.reason is EndReason.EXITED and self.exit == 0


Report: TypeAlias = Started | Ending
