"""Types and limits of the fields of messages, as in the published schemas."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

# `$` alone would let a line end stand behind the last character in Python, though not elsewhere.

#: The largest number in a message.
LARGEST_INT = 2**63 - 1

#: A name that programs compare: a site, an application, a queue, a project.
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}$(?!\n)")]
#: The same, or nothing.
MaybeWord = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127})?$(?!\n)")]
#: A line for people.
Line = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{0,200}$(?!\n)")]
#: Text of several lines.
Text = Annotated[str, Meta(max_length=10_000)]
#: Identifies a message; chosen by the sender.
Token = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:/+=@-]{0,199})?$(?!\n)")]
#: The routing key that status messages are sent with.
Route = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:-]{0,199})?$(?!\n)")]
#: Where data comes from or goes to.
Url = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9+-]{0,15}://[^\s\\\x00-\x1f\x7f]{1,2000}$(?!\n)")]
#: The same, or nothing.
MaybeUrl = Annotated[
    str, Meta(pattern=r"^([a-z][a-z0-9+-]{0,15}://[^\s\\\x00-\x1f\x7f]{1,2000})?$(?!\n)")
]  # fmt: skip
#: A file or folder below the folder of the job; empty is that folder.
Below = Annotated[
    str, Meta(pattern=r"^(?![/~])(?!(.*/)?\.\.(/|$))[^\\\x00-\x1f\x7f]{0,1000}$(?!\n)")
]  # fmt: skip
#: The name of a parameter.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$(?!\n)")]
#: The name of an environment variable.
Variable = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)")]
Email = Annotated[
    str, Meta(pattern=r"^([^\s@\x00-\x1f\x7f,;<>]{1,64}@[A-Za-z0-9.-]{1,255})?$(?!\n)")
]  # fmt: skip
#: Bytes of one stream of a job that a status carries, and the same in base64.
MOST_LOG = 32_768
Bytes = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9+/]*={0,2}$(?!\n)", max_length=MOST_LOG * 4 // 3 + 4)
]  # fmt: skip
#: Bytes of files that the message of a job carries, and such a file in base64. An agent that does
#: not report its own limit has that of `MOST_LOG`.
MOST_CARRIED = 131_072
Content = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9+/]*={0,2}$(?!\n)", max_length=MOST_CARRIED * 4 // 3 + 4)
]  # fmt: skip
#: Bytes of each stream of a job that a hub brings while the job runs.
MOST_FOLLOWED = 10 << 20
#: Characters of what a function returned that a status carries.
MOST_RESULT_TEXT = 400_000
Json = Annotated[str, Meta(max_length=MOST_RESULT_TEXT)]
Digest = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$(?!\n)")]
#: A further option of the batch system, which the site must allow.
Option = Annotated[
    str, Meta(pattern=r"^--?[A-Za-z][A-Za-z0-9_-]{0,63}(=[^\x00-\x1f\x7f]{0,500})?$(?!\n)")
]
Whole = Annotated[int, Meta(ge=0, le=LARGEST_INT)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
#: The value of a parameter; the application restricts it.
Value = (
    bool
    | Annotated[int, Meta(ge=-LARGEST_INT, le=LARGEST_INT)]
    | float
    | Annotated[str, Meta(max_length=4096)]
)

#: Where a job is, by the names of `pilotage.job.model.State`.
State = Literal[
    "waiting", "queued", "staging_in", "ready", "submitted", "running", "staging_out", "held",
    "done", "failed", "cancelled", "rejected",
]  # fmt: skip
#: The step in that state, or at its end; `queue` means that the batch system has it.
Step = Literal[
    "", "accept", "stage_in", "preprocess", "submit", "queue", "run", "postprocess", "stage_out"
]
#: The format of status messages.
Speech = Literal["pilotage", "balsam", "argo"]
Verb = Literal["cancel", "hold", "release", "retry", "query", "resend", "drain", "resume"]
