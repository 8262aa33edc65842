"""What each kind of sandbox protects, and what it does not."""

from __future__ import annotations

#: What a hostile payload may try, with what it would gain.
THREATS = {
    "token": "read the token of the pilot from its file",
    "environment": "read the environment of the pilot",
    "memory": "read the memory of the pilot",
    "files": "read or change the files of the pilot",
    "signal": "signal the pilot or another payload",
    "disk": "fill the disk",
    "forks": "start processes without end",
    "outlive": "run on after it was killed",
    "others": "read the directory of another user's payload",
}

_ALL = frozenset(THREATS)

_PROTECTED = {
    # A starter adopts and kills what its payloads leave behind, whatever they are in.
    "none": frozenset({"outlive"}),
    "bubblewrap": _ALL,
    "podman": _ALL,
    "apptainer": _ALL - {"forks"},
    "user": _ALL,
}

#: The kinds of sandbox, the weakest first.
KINDS = tuple(_PROTECTED)


def protects(kind: str) -> dict[str, bool]:
    """Tell of each threat whether this kind of sandbox stands in its way."""
    return {threat: threat in _PROTECTED[kind] for threat in THREATS}


def words(kind: str) -> str:
    """Say in one sentence what a payload in this kind of sandbox can still do."""
    open_ = [THREATS[threat] for threat, shut in protects(kind).items() if not shut]
    if not open_:
        return f"A payload in {kind} can do none of what is tested."
    listed = "; ".join(open_)
    return f"A payload in {kind} can: {listed}."
