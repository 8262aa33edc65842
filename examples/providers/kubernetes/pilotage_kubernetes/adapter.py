"""The adapter: commands of `kubectl`, and how to read what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from pilotage.batch.system import words
from pilotage.batch.system.model import (
    BatchCommand,
    BatchError,
    BatchItem,
    BatchOrder,
    Output,
)
from pilotage.batch.system.tools import cancelled

from . import listing, settings
from .manifest import CANCELLED, OWNER, manifest

_ID = "[a-z][a-z0-9]{14}"
_MADE = re.compile(rf"job\.batch/({_ID})\n", re.ASCII)
_THERE = re.compile(rf'\(AlreadyExists\): .*jobs\.batch "({_ID})" already exists', re.ASCII)
#: What the cluster will never take, whoever asks again.
_FINAL = re.compile(r"\((Forbidden|Invalid|BadRequest|NotFound)\)")
#: A quota that is full now may have room later.
_LATER = re.compile(r"exceeded quota")
#: A job with a deadline of a second in the past is ended by the cluster, and tells so for a day;
#: one that was deleted would tell nothing.
_OFF = {"metadata": {"annotations": {CANCELLED: "true"}}, "spec": {"activeDeadlineSeconds": 1}}
#: What `kubectl patch` says of jobs that are gone, and of those that it changed.
_GONE = r"^Error from server \(NotFound\)|^job\.batch/.* patched"


class Kubernetes:
    """A cluster, by `kubectl`."""

    name: ClassVar[str] = "kubernetes"
    arrays: ClassVar[bool] = False

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Take `[plugin]` of the site's file."""
        self._settings = settings.read(given)

    def submit(self, order: BatchOrder) -> BatchCommand:
        """Create a job whose name is the order's key."""
        words.check(order)
        if order.count != 1:
            raise BatchError(f"count = {order.count}: there are no arrays here", final=True)
        body = msgspec.json.encode(manifest(order, self._settings)).decode()
        argv = (*self._settings.argv, "create", "--filename=-", "--output=name")
        # The manifest is ours: no need to fetch the cluster's schema for each.
        return BatchCommand((*argv, "--validate=false"), input=body)

    def submitted(self, said: Output) -> str:
        """Read the name; one that is there already is this very order."""
        if said.exit != 0:
            if there := _THERE.search(said.err):
                return there[1]
            final = bool(_FINAL.search(said.err)) and not _LATER.search(said.err)
            raise BatchError(f"kubectl create: {words.complaint(said)}", final=final)
        if made := _MADE.fullmatch(said.out):
            return made[1]
        raise BatchError(f"kubectl create gave no name but {said.out[:200]!r}")

    def listing(self) -> BatchCommand:
        """List all our jobs with their pods, also what ended within a day."""
        selector = f"--selector={OWNER[0]}={OWNER[1]}"
        return BatchCommand((*self._settings.argv, "get", "jobs,pods", selector, "--output=json"))

    def listed(self, said: Output) -> list[BatchItem]:
        """Read a listing."""
        if said.exit != 0:
            raise BatchError(f"kubectl get: {words.complaint(said)}")
        return listing.items(said.out)

    def history(self, since: float) -> BatchCommand | None:
        """Have none beside the listing."""
        del since
        return None

    def remembered(self, said: Output) -> list[BatchItem]:
        """Have nothing to remember."""
        del said
        return []

    def cancel(self, ids: Sequence[str]) -> BatchCommand:
        """End jobs by their deadline; those that are over or gone are no error."""
        patch = msgspec.json.encode(_OFF).decode()
        argv = (*self._settings.argv, "patch", "--type=merge", f"--patch={patch}", "job")
        return cancelled(argv, ids, pattern=_ID, gone=_GONE)

    def version(self) -> BatchCommand:
        """See whether `kubectl` is there, and whether the cluster answers."""
        return BatchCommand((*self._settings.argv, "version", "--output=json"))
