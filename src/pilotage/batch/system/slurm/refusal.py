"""What `sbatch` says when it takes no job, and whether it ever will."""

from __future__ import annotations

#: Passes by itself, whatever else is said beside it.
_PASSING = (
    "socket timed out",
    "unable to contact",
    "temporarily",
    "try again",
    "connection refused",
    "connection reset",
    "connection timed out",
    "no route to host",
    "zero bytes",
    "in standby",
    "not available now",
    "credential",
    "authentication",
    "munge",
    "unable to process configuration file",
    # Limits on how many may be there at once.
    "maxsubmit",
    "maxjobs",
    "grpsubmit",
    "maximum number of jobs",
)
#: The same order is refused for ever.
_FINAL = (
    "invalid partition",
    "invalid account",
    "invalid qos",
    "invalid wckey",
    "invalid feature",
    "invalid generic resource",
    "invalid license",
    "invalid trackable",
    "invalid job array",
    "invalid node name",
    "invalid --",
    "specification invalid",
    "invalid time specification",
    "invalid memory",
    "reservation is invalid",
    "access denied to requested reservation",
    "access/permission denied",
    "group not permitted",
    "user not permitted",
    "node configuration is not available",
    "memory specification can not be satisfied",
    "more processors requested than permitted",
    "time limit is invalid",
    "unrecognized option",
    "invalid option",
    "requires an argument",
    "is ambiguous",
    "batch script is empty",
    "look like a batch script",
    "dos line breaks",
    # Limits on one job.
    "perjob",
    "maxwall",
    "partitionnodelimit",
    "partitiontimelimit",
)


def is_final(text: str) -> bool:
    """Say whether the same order can never be accepted; in doubt it can."""
    lower = text.lower()
    return not any(one in lower for one in _PASSING) and any(one in lower for one in _FINAL)
