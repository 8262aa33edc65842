"""Slurm, from 20.02 on: `sbatch`, `srun`, `squeue`, `sacct`, `scancel`, and `sinfo` for windows.

`orders` turns an order into options, `listing` reads what `squeue` and `sacct` print, `windows`
finds out when nodes are free.
"""

from __future__ import annotations

import re

from pilotage.batch.system.model import Windows
from pilotage.batch.system.tools import ListCommand, Tools

from . import listing, orders, windows

__all__ = ["TOOLS"]

TOOLS = Tools(
    name="slurm",
    submitter="sbatch",
    order=orders.submit,
    answer=re.compile(r"(?P<id>[1-9][0-9]*)(;[\w.-]+)?"),
    final=re.compile(
        r"invalid partition|invalid account|invalid qos|invalid wckey|invalid feature"
        r"|invalid generic resource|invalid license|invalid trackable|invalid job array"
        r"|invalid node name|invalid --|specification invalid|invalid time specification"
        r"|invalid memory|reservation is invalid|access denied to requested reservation"
        r"|access/permission denied|group not permitted|user not permitted"
        r"|node configuration is not available|memory specification can not be satisfied"
        r"|more processors requested than permitted|time limit is invalid|unrecognized option"
        r"|invalid option|requires an argument|is ambiguous|batch script is empty"
        r"|look like a batch script|dos line breaks|perjob|maxwall|partitionnodelimit"
        r"|partitiontimelimit",
        re.IGNORECASE,
    ),
    passing=re.compile(
        r"socket timed out|unable to contact|temporarily|try again|connection refused"
        r"|connection reset|connection timed out|no route to host|zero bytes|in standby"
        r"|not available now|credential|authentication|munge"
        r"|unable to process configuration file|maxsubmit|maxjobs|grpsubmit"
        r"|maximum number of jobs",
        re.IGNORECASE,
    ),
    live=ListCommand("squeue", listing.SQUEUE, listing.read),
    past=listing.past,
    canceller=("scancel", "--quiet"),
    ids="[1-9][0-9]*(_[0-9]+)?",
    join=orders.joined,
    versions=("sbatch", "--version"),
    queue=("scontrol", "--oneliner", "show", "partition"),
    windows=Windows(
        looks=windows.LOOKS,
        seen=windows.seen,
        queues=windows.queues,
        bounds=windows.bounds,
        gaps=windows.gaps,
        trial=windows.trial,
        tried=windows.tried,
    ),
)
