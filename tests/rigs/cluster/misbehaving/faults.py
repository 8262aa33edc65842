"""Every fault, and what it does; a minute may be `minutes`."""

from __future__ import annotations

#: What a real `sbatch` says while nobody knows whether the controller got the job.
DOUBT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
AWAY = "error: Unable to contact slurm controller (connect failure)\n"
FINAL = "sbatch: error: Batch job submission failed: Invalid partition name specified\n"
JUNK = "*** The system will be down for maintenance on Monday ***\nWelcome!\n"
HEADER = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"

SUBMIT = {
    "late_accept": "takes the job, then says nothing for a minute, and then the id",
    "late_refuse": "says nothing for a minute, takes nothing, and fails",
    "error_accept": "takes the job and says that it could not reach the controller",
    "error": "takes nothing, for it could not reach the controller",
    "refuse": "takes nothing, and never will",
    "junk_accept": "takes the job and says something else than an id, with status 0",
    "junk": "takes nothing and says something else than an id, with status 0",
    "silent_accept": "takes the job and says nothing, with status 0",
    "id_error": "takes the job, says the id, and fails after that",
    "killed_accept": "takes the job and is killed",
    "killed": "is killed before it takes anything",
    "vanish": "says an id, but there is no job",
    "hide": "takes the job, but the next listings (`listings`, 2) do not have it",
    "twice": "takes the job two times, and says the second id",
    "reuse": "takes the job under the id of the first one that was ever taken",
    "slow": "does all as it should, a minute later",
}
LIST = {
    "error": "fails, for it could not reach the controller",
    "empty": "says that there is no job at all, with status 0",
    "nothing": "writes not a single byte and is killed",
    "truncated": "ends in the middle of a row, with status 0",
    "short": "leaves out the last half of the jobs, with status 0",
    "header": "writes the head of a table and no rows",
    "junk": "writes something else, with status 0",
    "bytes": "writes what is no UTF-8",
    "unknown": "has states that nobody knows, or those that are given by id (`words`)",
    "stale": "writes what it wrote the last time",
    "slow": "does all as it should, a minute later",
}
#: What is written in the place of a listing.
INSTEAD = {"junk": JUNK, "header": HEADER, "empty": ""}
CANCEL = {
    "error": "does nothing and fails",
    "error_done": "does all and fails",
    "deaf": "does nothing, and says that all is well",
    "slow": "does all as it should, a minute later",
}
KNOWN = {"sbatch": SUBMIT, "srun": SUBMIT, "squeue": LIST, "sacct": LIST, "scancel": CANCEL}
