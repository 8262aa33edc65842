from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.contract.transfer import places
from tests.contract.transfer.places import Place
from tests.suite import system


@pytest.fixture(scope="session", params=sorted(places.KINDS))
def server(request, tmp_path_factory) -> Iterator[Place]:
    kind = request.param
    system.needs(*places.KINDS[kind][1])
    top = tmp_path_factory.mktemp(kind.replace("+", "-"))
    with contextlib.ExitStack() as stack:
        match kind:
            case "sftp":
                bed = request.getfixturevalue("sshd")
                yield stack.enter_context(places.ssh(bed, kind))
            case "webdav":
                yield stack.enter_context(places.web(top, dav=True))
            case "file":
                yield stack.enter_context(places.file(top))
            case "hub":
                yield stack.enter_context(places.hub(top))
            case "rsync":
                yield stack.enter_context(places.rsync(top))
            case _:
                yield stack.enter_context(places.xrootd())


@pytest.fixture
def place(server, request) -> Place:
    """Give each test a folder of its own at the server."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    own = Place(
        server.kind, server.root / name, f"{server.url.rstrip('/')}/{name}", server.allowed,
        server.keys, server.owner, server.web, server.home,
    )  # fmt: skip
    own.root.mkdir()
    own.own()
    return own
