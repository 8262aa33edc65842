"""Every error that Pilotage raises on purpose.

    PilotageError                 1   something that was asked for failed
    ├── JobFailed                 1   a job that was waited for did not end well
    ├── RemoteError               1   a function raised an exception where it ran
    ├── UsageError                2   the call itself is wrong
    │   ├── BadSelector           2
    │   └── BadMessage            2
    ├── ConfigError               3   a file that a person wrote is wrong
    │   ├── NoProject             3
    │   └── BadRule               3
    │       └── BadFlow           3
    ├── NotFound                  4   the thing named does not exist
    ├── Denied                    5   refused by a policy, a token or a limit
    │   ├── TooLarge              5
    │   └── NeedsCredential       5
    ├── Unavailable               6   cannot be reached now; trying again may help
    │   ├── StoreUnavailable      6
    │   ├── NoRunner              6
    │   ├── Unsure                6
    │   ├── Damaged               6
    │   └── Unheard               6
    ├── Conflict                  7   something else is in the way
    │   ├── AlreadyRunning        7
    │   └── IllegalTransition     7
    └── TimedOut                124

The number is the exit status of a command that ends with the error.
"""

from __future__ import annotations

from typing import ClassVar


class PilotageError(Exception):
    """Something that was asked for failed."""

    #: A stable code; `pilotage help CODE` explains it.
    code: ClassVar[str] = "E100"
    #: The exit status of a command that ends with this error.
    exit_status: ClassVar[int] = 1
    #: Whether the same call may succeed later.
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep what happened, and what to do about it."""
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            # A program that does not catch it ends with a traceback, which shows notes.
            self.add_note(f"hint: {hint}")


class JobFailed(PilotageError):
    """A job that was waited for did not end well."""

    code = "E101"

    def __init__(
        self, message: str, *, hint: str = "", job: int | None = None, state: str = "failed"
    ) -> None:
        """Name the job and the state in which it ended."""
        super().__init__(message, hint=hint)
        self.job = job
        self.state = state


class RemoteError(PilotageError):
    """A function raised an exception where it ran."""

    code = "E102"

    def __init__(
        self, message: str, *, hint: str = "", kind: str = "", trace: str = "",
        job: int | None = None,
    ) -> None:  # fmt: skip
        """Name what it raised, and keep the traceback from there as a note."""
        super().__init__(message, hint=hint)
        #: The name of the exception's class, such as `ValueError`.
        self.kind = kind
        #: The traceback from where it ran.
        self.trace = trace
        self.job = job
        if trace:
            self.add_note(f"where it ran:\n{trace.rstrip()}")

    def __str__(self) -> str:
        """Put the name of the class before the message."""
        return ": ".join(part for part in (self.kind, self.message) if part)


class UsageError(PilotageError):
    """The call itself is wrong: an argument is missing, malformed or out of range."""

    code = "E200"
    exit_status = 2


class BadSelector(UsageError):
    """A job selector cannot be understood."""

    code = "E201"


class BadMessage(UsageError):
    """A message from the bus cannot be accepted as it is."""

    code = "E202"

    def __init__(self, message: str, *, hint: str = "", field: str = "") -> None:
        """Name the field that is wrong, where it is one."""
        super().__init__(message, hint=hint)
        #: Path of the field, such as `resources.cpus`; empty if it is the whole message.
        self.field = field


class ConfigError(PilotageError):
    """A file that a person wrote is wrong."""

    code = "E300"
    exit_status = 3

    def __init__(self, message: str, *, hint: str = "", keys: tuple[str, ...] = ()) -> None:
        """Name the keys that lead to what is wrong in the file, where they are known."""
        super().__init__(message, hint=hint)
        self.keys = keys


class NoProject(ConfigError):
    """There is no Pilotage project here or in any folder above."""

    code = "E301"


class BadRule(ConfigError):
    """A rule, recipe, pattern or sweep is wrong."""

    code = "E302"

    def __init__(
        self, message: str, *, hint: str = "", file: str = "", line: int | None = None, at: str = ""
    ) -> None:
        """Name the place in the file as exactly as it is known."""
        super().__init__(message, hint=hint)
        self.file = file
        self.line = line
        #: Path of keys to the offending value, such as `rule.clean.sweep.level`.
        self.at = at

    def __str__(self) -> str:
        """Put the place before the message, as compilers do."""
        place = ":".join(str(part) for part in (self.file, self.line) if part)
        return ": ".join(part for part in (place, self.at, self.message) if part)


class BadFlow(BadRule):
    """A workflow is wrong."""

    code = "E303"


class NotFound(PilotageError):
    """The job, rule, event or file that was named does not exist."""

    code = "E400"
    exit_status = 4


class Denied(PilotageError):
    """A policy, a token or a limit says no."""

    code = "E500"
    exit_status = 5


class TooLarge(Denied):
    """A message is larger than the limit set for it."""

    code = "E501"


class NeedsCredential(Denied):
    """A credential is missing, has expired or is not accepted; a new one may help."""

    code = "E502"


class Unavailable(PilotageError):
    """Something cannot be reached now; trying again may help."""

    code = "E600"
    exit_status = 6
    retryable = True


class StoreUnavailable(Unavailable):
    """The store cannot be read or written: disk full, read-only, or locked for too long."""

    code = "E601"


class NoRunner(Unavailable):
    """Nothing runs jobs in this project now."""

    code = "E602"


class Unsure(Unavailable):
    """A command was sent, and it is not known whether it was done."""

    code = "E603"
    # It could be done twice.
    retryable = False


class Damaged(Unavailable):
    """Data is damaged: bytes are missing or differ from the announced ones."""

    code = "E604"


class Unheard(Unavailable):
    """A message was sent to a queue without a consumer."""

    code = "E605"


class Conflict(PilotageError):
    """Something else is in the way: another process, file or state."""

    code = "E700"
    exit_status = 7


class AlreadyRunning(Conflict):
    """Another process runs this project already."""

    code = "E701"


class IllegalTransition(Conflict):
    """A job cannot go from its state to the one asked for."""

    code = "E702"


class TimedOut(PilotageError):
    """A wait timed out."""

    code = "E800"
    exit_status = 124
    retryable = True


def by_code(code: str) -> type[PilotageError]:
    """Find the class of a code, or the nearest that is known."""
    found = _below(PilotageError)
    return found.get(code) or found.get(f"{code[:2]}00") or PilotageError


def _below(top: type[PilotageError]) -> dict[str, type[PilotageError]]:
    found = {top.code: top}
    for kind in top.__subclasses__():
        found |= _below(kind)
    return found
