"""MEOW handlers and conductors: which recipes are allowed, and how many jobs run."""

from __future__ import annotations

import secrets
import sys
from typing import ClassVar, TextIO

from pilotage.compat.meow import check

_UNSENT = "no mail is sent; a rule on ended jobs can run a program that does"


class Handler:
    """Lets recipes of one type make jobs."""

    #: The type of jobs that it makes.
    job_type: ClassVar[str]

    def __init__(
        self,
        job_queue_dir: str = "job_queue",
        name: str = "",
        print: TextIO | None = None,  # noqa: A002 - MEOW's name
        logging: int = 0,
        pause_time: float = 5,
    ) -> None:
        """Take what MEOW takes; nothing waits for `pause_time`, since nothing is polled."""
        self.job_queue_dir = check.name(job_queue_dir, "job_queue_dir")
        self.name = check.kind(name, str, "name") or f"handler_{secrets.token_hex(6)}"
        self.print = print or sys.stdout
        self.logging = check.log_level(logging)
        self.pause_time = check.number(pause_time, "pause_time")


class BashHandler(Handler):
    """Makes jobs of bash recipes."""

    job_type = "bash"


class PythonHandler(Handler):
    """Makes jobs of Python recipes."""

    job_type = "python"


class PapermillHandler(Handler):
    """Makes jobs of notebooks."""

    job_type = "papermill"


class Conductor:
    """A place in which one job runs at a time."""

    #: The types of jobs that it runs.
    job_types: ClassVar[frozenset[str]]

    def __init__(
        self,
        job_queue_dir: str = "job_queue",
        job_output_dir: str = "job_output",
        name: str = "",
        pause_time: float = 5,
        notification_email: str = "",
        notification_email_smtp: str = "",
    ) -> None:
        """Take what MEOW takes; nothing waits for `pause_time`, since nothing is polled."""
        self.job_queue_dir = check.name(job_queue_dir, "job_queue_dir")
        self.job_output_dir = check.name(job_output_dir, "job_output_dir")
        self.name = check.kind(name, str, "name") or f"conductor_{secrets.token_hex(6)}"
        self.pause_time = check.number(pause_time, "pause_time")
        self.notification_email = check.kind(notification_email, str, "notification_email")
        self.notification_email_smtp = notification_email_smtp
        check.not_done(notification_email, "notification_email", _UNSENT, up=2)


class LocalBashConductor(Conductor):
    """Runs bash jobs on this machine."""

    job_types = frozenset({"bash"})


class LocalPythonConductor(Conductor):
    """Runs Python jobs and notebooks on this machine."""

    job_types = frozenset({"python", "papermill"})
