"""Causes of the end of an attempt: one list for this machine, pilots and batch systems."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """The cause of the end of a failed attempt."""

    #: Nothing: it succeeded, or the store is older than causes.
    NONE = ""
    #: It exited with a code that is no success.
    EXIT = "exit"
    #: A signal that we did not send killed it.
    SIGNAL = "signal"
    #: It used up its time.
    TIMEOUT = "timeout"
    #: It used more memory than it may.
    MEMORY = "memory"
    #: It wrote more than it may.
    DISK = "disk"
    #: It ended well, and a declared output is missing.
    OUTPUT = "output"
    #: It is a workflow, and a step of it failed.
    STEP = "step"
    #: What it reads changed before it began.
    INPUT = "input"
    #: It could not be started.
    NOT_STARTED = "not_started"
    #: It was stopped because its runner stops, or a person asked for it.
    STOPPED = "stopped"
    #: It was cancelled at the batch system.
    CANCELLED = "cancelled"
    #: Its node failed.
    NODE = "node"
    #: Its place was given to another job.
    PREEMPTED = "preempted"
    #: It was killed from outside, by the batch system or by a person there.
    KILLED = "killed"
    #: It vanished, and left no evidence of its end.
    LOST = "lost"
