"""Container images that were brought from the user's machine, made ready once on each node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

#: How long a program that loads an image may take.
_SECONDS = 3600.0
_WORDS = 2000
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOADED = re.compile(r"^Loaded image(?:\(s\))?: *(\S.*)$", re.MULTILINE)


class NoImageError(Exception):
    """The image cannot be used here; the text says why."""


def ready(launch: Mapping[str, Any], item: Mapping[str, Any], area: str) -> dict[str, Any]:
    """Name in a launch the image that its item brings, after making sure that it is there.

    `area` is the folder of the item, beside which `in` holds what was brought by its digest.
    """
    image, sandbox = item.get("image"), launch.get("sandbox") or {}
    if not image:
        return dict(launch)
    digest = str(image["sha256"])
    if not _SHA256.fullmatch(digest):
        raise NoImageError(f"{digest!r} is no digest of an image")
    source = os.path.join(os.path.dirname(os.path.abspath(area)), "in", digest)
    if not os.path.isfile(source):
        raise NoImageError(f"the image {image.get('name', '')} did not arrive here")
    kind, name = sandbox.get("kind", "none"), ""
    if kind == "podman":
        name = _for_podman(image, source, digest)
    elif kind == "apptainer":
        name = source if image["kind"] == "sif" else _for_apptainer(source, digest)
    else:
        raise NoImageError(f"an image cannot be run in the sandbox `{kind}`")
    return {**launch, "sandbox": {**sandbox, "image": name}}


def _for_podman(image: Mapping[str, Any], source: str, digest: str) -> str:
    """Load an archive into this user's storage unless it is there; return the image's number."""
    if image["kind"] == "sif":
        raise NoImageError("a `.sif` image needs apptainer, and this job runs in podman")
    mark = os.path.join(_home(), digest)
    known = _marked(mark)
    if known and _has(known):
        return known
    with _locked(f"{mark}.lock"):
        known = _marked(mark)
        if known and _has(known):
            return known
        made = _load(source)
        part = f"{mark}.{os.getpid()}"
        with open(part, "w", encoding="ascii") as file:
            file.write(made)
        os.replace(part, mark)
        return made


def _load(source: str) -> str:
    # One at a time: the names in an archive are its maker's, and two may have the same.
    with _locked(os.path.join(_home(), "load.lock")):
        names = _LOADED.findall(_run(["podman", "load", "--quiet", "--input", source]))
        numbers = {_number(name.strip()) for name in names}
        if len(numbers) != 1:
            raise NoImageError(f"the archive holds {len(numbers)} images, and one is needed")
        made = numbers.pop()
        # Whatever it calls itself, it must not be taken for the image of that name.
        for name in names:
            if not name.startswith("sha256:"):
                _run(["podman", "untag", made, name.strip()])
    return made


def _number(name: str) -> str:
    """Ask for the number of an image, which is the digest of what it is made of."""
    found = _run(["podman", "image", "inspect", "--format", "{{.Id}}", name]).strip()
    return found.rpartition(":")[2]


def _has(number: str) -> bool:
    try:
        _run(["podman", "image", "exists", number])
    except NoImageError:
        return False
    return True


def _marked(mark: str) -> str:
    """Read which image was loaded."""
    try:
        with open(mark, encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return ""
    return text if _SHA256.fullmatch(text) else ""


def _for_apptainer(source: str, digest: str) -> str:
    """Turn an archive into a file that apptainer runs, unless there is one; return its path."""
    made = os.path.join(_home(), f"{digest}.sif")
    program = "apptainer" if shutil.which("apptainer") else "singularity"
    with _locked(f"{made}.lock"):
        if not os.path.exists(made):
            kind = "oci-archive" if _is_oci(source) else "docker-archive"
            part = f"{made}.{os.getpid()}"
            _run([program, "--silent", "build", "--force", part, f"{kind}:{source}"])
            os.replace(part, made)
    return made


def _is_oci(source: str) -> bool:
    """Distinguish the two kinds of archives."""
    import tarfile

    try:
        with tarfile.open(source) as archive:
            return any(os.path.normpath(one.name) == "oci-layout" for one in archive)
    except tarfile.TarError as error:
        raise NoImageError(f"the image is no archive: {error}") from error


def _run(argv: list[str]) -> str:
    """Run a program to its end and return what it said."""
    # Into files: podman may leave a process behind that holds on to what it was given.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as words:
        try:
            done = subprocess.run(
                argv, check=False, cwd="/", timeout=_SECONDS, stdin=subprocess.DEVNULL,
                stdout=said, stderr=words,
            )  # fmt: skip
        except FileNotFoundError as error:
            raise NoImageError(f"this node has no `{argv[0]}`") from error
        except subprocess.TimeoutExpired as error:
            raise NoImageError(f"`{argv[0]} {argv[1]}` takes too long") from error
        said.seek(0)
        words.seek(0)
        if done.returncode:
            why = " ".join(words.read().decode("utf-8", "replace")[-_WORDS:].split())
            raise NoImageError(f"`{argv[0]} {argv[1]}` failed: {why}")
        return said.read().decode("utf-8", "replace")


def _home() -> str:
    """Make a folder of this user on this node."""
    home = f"/tmp/pilotage-images-{os.getuid()}"  # noqa: S108 - checked below
    with contextlib.suppress(FileExistsError):
        os.mkdir(home, 0o700)
    what = os.lstat(home)
    if what.st_uid != os.getuid() or not stat.S_ISDIR(what.st_mode) or what.st_mode & 0o022:
        raise NoImageError(f"{home} is not ours")
    return home


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Wait until no other job on this node does the same."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
