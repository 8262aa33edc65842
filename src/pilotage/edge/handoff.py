"""Hand-off of data between steps: folders of attempts, their URLs, and inputs of a task.

    BASE/<flow>/<step>/<item>/<attempt>/

Each attempt has a folder of its own, which no other attempt writes. `BASE` is the store of the site
itself if all readers can reach it there, otherwise the transfer server. Without one, the hub's
own port is that server for agents that dial it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from pilotage.data.transfer.url import PORT

#: The name of the hub itself among readers; no site can have it.
HUB = ""
#: Characters that stay as they are in a name; others are escaped.
_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
#: Maximal length of the name of a folder.
_LONGEST = 120
#: Characters that stay as they are in a URL.
_SAFE = "/~!$&'()*+,;=:@"


class DataStore(msgspec.Struct, frozen=True):
    """A folder for data: its URL for those who write it, and for readers."""

    write: str
    read: str
    #: Sites that can read it, beside its own and the hub.
    readers: frozenset[str] = frozenset()


class DataStores(msgspec.Struct, frozen=True):
    """All stores for data."""

    #: The private folder of this hub.
    local: str
    #: The transfer server, as sites name it and as the hub does; empty if there is none.
    data: str = ""
    here: str = ""
    #: Whether a site can reach that.
    reaches: Callable[[str], bool] = lambda _: True
    #: Stores of sites, by site.
    sites: Mapping[str, DataStore] = {}


class AttemptDir(msgspec.Struct, frozen=True):
    """The folder of an attempt."""

    #: As the attempt writes it.
    write: str
    #: As readers name it; this is recorded.
    read: str


class Take(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Data that a step reads."""

    #: A step whose outputs it is; empty means a URL, or an input of the flow.
    step: str = ""
    #: One output of that step; empty means all.
    output: str = ""
    #: A URL, or a path below the project's folder; a template.
    url: str = ""
    #: Its path below the folder of the job; empty means as at its source.
    path: str = ""
    #: Its SHA-256, if known.
    sha256: str = ""


class Artifact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that an attempt has left."""

    name: str
    size: int
    sha256: str = ""


class HandoffSource(msgspec.Struct, frozen=True):
    """The outputs of one task."""

    #: Its position in the list of its step.
    item: int
    place: str
    #: Of its manifest.
    digest: str
    files: tuple[Artifact, ...] = ()


class InputPiece(msgspec.Struct, frozen=True):
    """Something that a task reads: a folder with all that is in it, or one file."""

    url: str
    #: Its path below the folder of the task; empty means that folder itself.
    path: str
    #: Of a folder, the digest of its manifest.
    sha256: str = ""
    #: Whether a step has left it; otherwise a user has named it.
    own: bool = False


# -- places ----------------------------------------------------------------------------------------


def word(name: str) -> str:
    """Write a name so that it is one part of any path and URL; no two names become the same."""
    plain = _PLAIN.sub(_written, name)
    if plain and len(plain) <= _LONGEST:
        return plain
    # It cannot be mistaken for a short one: those have no two tildes one after the other.
    return f"{plain[:40]}~~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def _written(found: re.Match[str]) -> str:
    return "".join(f"~{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def mark(flow: int, key: str, created: float) -> str:
    """Name the folder of a flow: another hub, or another store of this one, counts from 1 too."""
    return f"{flow}-{hashlib.sha256(f'{key} {created!r}'.encode()).hexdigest()[:12]}"


def below(flow: str, step: str, item: int, attempt: int) -> str:
    """Name the folder of an attempt below that of all flows."""
    return f"{flow}/{word(step)}/{item}/{attempt}/"


def base(stores: DataStores, site: str, readers: Iterable[str] | None) -> DataStore | None:
    """Choose the store for data of an attempt at a site; none if there is no store.

    `readers` are the sites that may read it, and `HUB`; nothing means that this is not known.
    """
    own = stores.sites.get(site)
    known = None if readers is None else set(readers)
    if known is not None and site == HUB and known <= {HUB} and not _file(stores):
        return DataStore(stores.local, stores.local)
    if known is not None and own is not None and known <= own.readers | {site, HUB}:
        return own
    if not stores.data or not all(map(stores.reaches, {site, *(known or ())} - {HUB})):
        return None
    return DataStore(stores.here or stores.data if site == HUB else stores.data, stores.data)


def _file(stores: DataStores) -> bool:
    """Return whether the transfer server has a folder of this machine."""
    return stores.here.startswith("file:") and not stores.data.startswith(PORT)


def place(store: DataStore, name: str) -> AttemptDir:
    """Name the folder of an attempt in a store."""
    return AttemptDir(_join(store.write, name), _join(store.read, name))


def _join(top: str, name: str) -> str:
    return f"{top.rstrip('/')}/{name}"


def seen(stores: DataStores, url: str, site: str) -> str:
    """Return the URL of data as a site or the hub names it."""
    own = stores.sites.get(site)
    if own is not None and site != HUB:
        return _moved(url, own.read, own.write)
    return _moved(url, stores.data, stores.here) if site == HUB and stores.here else url


def _moved(url: str, old: str, new: str) -> str:
    top = f"{old.rstrip('/')}/"
    return _join(new, url.removeprefix(top)) if old and url.startswith(top) else url


# -- reading ---------------------------------------------------------------------------------------


def pairs(name: str, made: str, read: str) -> bool:
    """Return whether each task of a step reads from the task with its own place in the list alone.

    It does if both go through the same list, or the one through the results of the other; those
    lists are JSON, or nothing for a step with one task.
    """
    return bool(made) and read in (made, f'"{{{name}.result}}"')


def pieces(take: Take, sources: Sequence[HandoffSource], *, many: bool) -> list[InputPiece]:
    """List the inputs of a task from a step; each of `many` tasks has a folder of its own.

    Nothing is returned for an output that is not there.
    """
    found: list[InputPiece] = []
    for one in sources:
        within = f"{take.path.rstrip('/') or take.step}/{one.item}/" if many else ""
        if not take.output:
            path = within or take.path
            found.append(InputPiece(one.place, path.rstrip("/"), one.digest, own=True))
        else:
            found += _files(take, one, within)
    return found


def _files(take: Take, source: HandoffSource, within: str) -> list[InputPiece]:
    top = f"{take.output.rstrip('/')}/"
    found = []
    for file in source.files:
        if file.name == take.output:
            path = f"{within}{file.name}" if within else _called(take, file.name)
        elif file.name.startswith(top):
            rest = file.name.removeprefix(top)
            own = f"{take.path.rstrip('/')}/{rest}" if take.path and not within else file.name
            path = f"{within}{own}"
        else:
            continue
        found.append(InputPiece(address(source.place, file.name), path, file.sha256, own=True))
    return found


def _called(take: Take, name: str) -> str:
    """Return the path of a single file: a path that ends with a slash is its folder."""
    if not take.path:
        return name
    return f"{take.path}{name.rpartition('/')[2]}" if take.path.endswith("/") else take.path


def address(place: str, name: str) -> str:
    """Write the address of a file below a folder."""
    return place + quote(name.encode("utf-8", "surrogateescape"), safe=_SAFE)
