"""Where data of workflows lies: no two attempts share a folder, and all who must can name it."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import paths
from pilotage.data.transfer import url
from pilotage.edge import handoff
from pilotage.edge.handoff import (
    HUB,
    Artifact,
    DataStore,
    DataStores,
    HandoffSource,
    InputPiece,
    Take,
)

NAMES = st.text(min_size=1, max_size=300)
SITE = DataStore("file:///scratch/flows", "sftp://dtn.a.org/scratch/flows", frozenset({"b"}))
STORES = DataStores(
    local="file:///p/.pilotage/flows/data", data="https://data.org/flows", here="file:///srv/flows",
    sites={"a": SITE},
)  # fmt: skip
FOLDERS = st.tuples(st.integers(1, 99), NAMES, st.integers(0, 9999), st.integers(1, 99))


@given(st.lists(FOLDERS, min_size=2, max_size=20, unique=True))
def test_no_two_attempts_have_the_same_folder_nor_one_in_the_other(
    given_: list[tuple[int, str, int, int]],
):
    made = [handoff.below(handoff.mark(one[0], "k", 1.0), *one[1:]) for one in given_]
    assert len(set(made)) == len(made)
    assert not any(one != two and two.startswith(one) for one in made for two in made)


@given(NAMES, NAMES)
def test_a_name_is_one_part_of_a_url_and_of_no_other_name(one: str, two: str):
    found = handoff.word(one)
    paths.check_name(found)
    assert (found == handoff.word(two)) == (one == two)
    assert len(found) <= 120
    where = url.parse(f"https://data.org/{found}/")
    assert where.path == f"/{found}/"
    assert where.quoted == where.path
    assert not found.startswith((".", "pilotage-manifest"))


def test_another_hub_with_the_same_server_has_other_folders():
    assert handoff.mark(1, "a", 1.0) != handoff.mark(1, "b", 1.0) != handoff.mark(1, "b", 2.0)
    assert handoff.mark(1, "a", 1.0) == handoff.mark(1, "a", 1.0)


@given(
    readers=st.sets(st.sampled_from(["a", "b", "c", HUB])),
    site=st.sampled_from(["a", "c", HUB]),
    known=st.booleans(),
)
def test_data_goes_straight_from_site_to_site_where_all_readers_can_reach_it(
    readers: set[str], site: str, *, known: bool
):
    found = handoff.base(STORES, site, readers if known else None)
    assert found is not None
    direct = site == "a" and known and readers <= {"a", "b", HUB}
    assert (found == SITE) == direct
    if not direct:
        assert found.read == STORES.data
        assert found.write == (STORES.here if site == HUB else STORES.data)


def test_without_a_transfer_server_the_hub_keeps_what_only_it_reads():
    alone = DataStores(local="file:///p/x")
    assert handoff.base(alone, HUB, [HUB]) == DataStore("file:///p/x", "file:///p/x")
    assert handoff.base(alone, HUB, ["a"]) is None
    assert handoff.base(alone, "a", [HUB]) is None
    port = DataStores(
        local="file:///p/x", data="hub://port/data/", here="file:///p/port",
        reaches=lambda site: site in ("a", "b"),
    )  # fmt: skip
    assert handoff.base(port, HUB, [HUB]) == DataStore("file:///p/x", "file:///p/x")
    assert handoff.base(port, HUB, ["a"]) == DataStore(port.here, port.data)
    assert handoff.base(port, HUB, None) == DataStore(port.here, port.data)
    assert handoff.base(port, "a", ["b", HUB]) == DataStore(port.data, port.data)
    assert handoff.base(port, "a", ["broker"]) is None
    assert handoff.base(port, "broker", [HUB]) is None
    assert handoff.seen(port, "hub://port/data/1/x/", HUB) == "file:///p/port/1/x/"
    assert handoff.seen(port, "hub://port/data/1/x/", "a") == "hub://port/data/1/x/"
    far = DataStores(local="file:///p/x", data="https://data.org/flows")
    assert handoff.base(far, HUB, [HUB]) == DataStore("file:///p/x", "file:///p/x")
    assert handoff.base(far, HUB, ["a", HUB]) == DataStore(far.data, far.data)


@given(FOLDERS, st.sampled_from(["a", "b", "c", HUB]))
def test_everybody_names_the_same_folder_in_their_own_words(
    folder: tuple[int, str, int, int], site: str
):
    name = handoff.below(handoff.mark(folder[0], "k", 1.0), *folder[1:])
    for maker, readers in (("a", ["b"]), ("a", None), ("c", ["a"]), (HUB, ["c"])):
        store = handoff.base(STORES, maker, readers)
        assert store is not None
        made = handoff.place(store, name)
        assert made.write.endswith(f"/{name}")
        assert handoff.seen(STORES, made.read, maker) == made.write
        shown = handoff.seen(STORES, made.read, site)
        assert shown.endswith(f"/{name}")
        assert not (site in ("b", "c") and shown.startswith("file:"))
    assert handoff.seen(STORES, "https://else.org/x/", site) == "https://else.org/x/"


# -- what is read ----------------------------------------------------------------------------------


def source(item: int, *files: str) -> HandoffSource:
    made = tuple(Artifact(name, 3, f"{at:064x}") for at, name in enumerate(files))
    return HandoffSource(item, f"https://data.org/flows/1/s/{item}/1/", "d" * 64, made)


def test_all_of_one_task_is_a_folder_pinned_by_its_manifest():
    (one,) = handoff.pieces(Take(step="s"), [source(0, "x")], many=False)
    assert one == InputPiece("https://data.org/flows/1/s/0/1/", "", "d" * 64, own=True)
    (one,) = handoff.pieces(Take(step="s", path="in/"), [source(0, "x")], many=False)
    assert one.path == "in"


def test_single_files_are_pinned_by_their_own_sums_and_keep_their_names():
    files = source(0, "a b/x", "out/y", "out/z/w", "other")

    def read(output: str, path: str = "") -> dict[str, str]:
        found = handoff.pieces(Take(step="s", output=output, path=path), [files], many=False)
        assert all(len(one.sha256) == 64 for one in found)
        return {one.path: one.url.removeprefix(files.place) for one in found}

    assert read("a b/x") == {"a b/x": "a%20b/x"}
    assert read("a b/x", "new") == {"new": "a%20b/x"}
    assert read("a b/x", "new/") == {"new/x": "a%20b/x"}
    assert read("out/") == {"out/y": "out/y", "out/z/w": "out/z/w"}
    assert read("out", "in") == {"in/y": "out/y", "in/z/w": "out/z/w"}
    assert read("gone") == {}


def test_what_many_tasks_left_has_a_folder_for_each():
    many = [source(at, "x") for at in range(3)]
    found = handoff.pieces(Take(step="s"), many, many=True)
    assert [one.path for one in found] == ["s/0", "s/1", "s/2"]
    found = handoff.pieces(Take(step="s", output="x", path="in"), many, many=True)
    assert [one.path for one in found] == ["in/0/x", "in/1/x", "in/2/x"]


@given(given_=st.lists(NAMES, min_size=1, max_size=5, unique=True), many=st.booleans())
def test_a_file_of_any_name_has_an_address_that_leads_to_it(given_: list[str], *, many: bool):
    good = [
        name for name in given_ if "/" not in name and "\0" not in name and name not in (".", "..")
    ]
    made = source(4, *good)
    for name in good:
        (one,) = handoff.pieces(Take(step="s", output=name), [made], many=many)
        below = one.url.removeprefix(made.place)
        assert unquote(below, "utf-8", "surrogateescape").encode(
            "utf-8", "surrogateescape"
        ) == name.encode("utf-8", "surrogateescape")
        assert one.url.isascii()
        assert not any(char.isspace() for char in one.url)


def test_steps_that_go_through_the_same_list_hand_on_item_by_item():
    chunks = '"{gen.result.chunks}"'
    assert handoff.pairs("one", chunks, chunks)
    assert handoff.pairs("one", chunks, '"{one.result}"')
    assert not handoff.pairs("one", chunks, '"{two.result}"')
    assert not handoff.pairs("one", chunks, "")
    assert not handoff.pairs("one", "", chunks)
    assert not handoff.pairs("one", "", "")
    assert handoff.pairs("one", "[1,2]", "[1,2]")
