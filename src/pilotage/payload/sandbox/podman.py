"""Podman: a container of the pilot's own user, with an image or with what this machine has."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
from collections.abc import Callable

from . import view
from .box import Box, NotPossibleError, Wrapped
from .keeper import HOME, kept

#: What podman needs to know of its user.
_PASSED = (
    "CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_STORAGE_CONF",
    "DBUS_SESSION_BUS_ADDRESS", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PATH",
    "REGISTRY_AUTH_FILE", "USER", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
_ULIMIT = {"cpu_seconds": "cpu", "file_size": "fsize", "open_files": "nofile", "processes": "nproc"}
#: Where podman puts something into every container.
_POINTS = ("proc", "sys", "dev", "tmp", "var/tmp", "run", "etc")
_FILES = ("run/podman-init", "run/.containerenv", "etc/hosts", "etc/hostname", "etc/resolv.conf")


def wrap(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start a keeper that runs podman."""
    name = (
        "pilotage-"
        + hashlib.sha256(f"{os.getpid()} {box.key} {box.place}".encode()).hexdigest()[:24]
    )
    shown, links = ([], {}) if box.image else view.system()
    mine = view.asked(box)
    if not box.image:
        view.check_cwd(box, shown + mine, links)
    argv = [*_podman(), "run", "--rm", "--name", name, *_walls(box), *_bounds(box)]
    argv += [word for one in shown + mine for word in ("--mount", _mount(one))]
    argv += ["--workdir", box.cwd, "--entrypoint", "", "--env-file", f"{HOME}/env"]
    argv += [] if box.image else ["--rootfs", f"{HOME}/root"]
    if not box.image:
        # Podman would make it, and nobody would remove it.
        links = {**links, "/etc/mtab": "/proc/mounts"}
    request = {
        "kind": "podman",
        "argv": argv,
        "rest": [*_image(box.image), *box.argv],
        "files": {"env": _env_file({**box.env, **marks})},
        "folders": [] if box.image else [*_POINTS, *_points(shown + mine, os.path.isdir)],
        "empty": [] if box.image else [*_FILES, *_points(shown + mine, os.path.isfile)],
        "links": links,
        "last": [*_podman(), "rm", "--force", "--ignore", "--time", "0", name],
    }
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return kept(request, {**passed, **marks})


def _podman() -> list[str]:
    # crun, the usual runtime, refuses machines with both versions of control groups.
    hybrid = os.path.isdir("/sys/fs/cgroup/unified") and shutil.which("runc")
    return ["podman", "--log-level=error", *(["--runtime", "runc"] if hybrid else [])]


def _walls(box: Box) -> list[str]:
    """Keep it apart from everything else."""
    made = ["--init", "--log-driver", "passthrough", "--read-only", "--cap-drop", "all"]
    made += ["--security-opt", "no-new-privileges", "--ipc", "private", "--pid", "private"]
    made += ["--network", "host" if box.network else "none", "--unsetenv-all"]
    if os.geteuid() == 0:
        return made
    # Only its own user can write into the payload's directory: under its own number, or as a root
    # that can do nothing more, which a folder needs that only this user may look into.
    return [*made, *(["--user", "0:0"] if box.user == "root" else ["--userns", "keep-id"])]


def _bounds(box: Box) -> list[str]:
    """Keep it from taking more than its share."""
    scratch = f"rw,nosuid,nodev,mode=1777,notmpcopyup,size={box.scratch}"
    made = ["--read-only-tmpfs=false", "--shm-size", str(box.scratch)]
    made += ["--tmpfs", f"/tmp:{scratch}", "--tmpfs", f"/var/tmp:{scratch}"]  # noqa: S108 - inside
    for name, value in box.limits.items():
        if name in _ULIMIT:
            made += ["--ulimit", f"{_ULIMIT[name]}={value}:{value}"]
    if os.geteuid() == 0 or os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        made += ["--pids-limit", str(box.limits["processes"])]
    return made


def _image(image: str) -> list[str]:
    if image.startswith("-"):
        raise NotPossibleError(f"{image!r} cannot be the name of an image")
    if image.startswith("/"):
        return ["--rootfs", image]
    return [image] if image else []


def _mount(one: view.Shown) -> str:
    """Write a mount as podman reads it, as one line of comma-separated values."""
    fields = ["type=bind", f"source={one.path}", f"destination={one.path}"]
    fields += [] if one.writable else ["ro"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _points(shown: list[view.Shown], test: Callable[[str], bool]) -> list[str]:
    """List where something is mounted, since podman cannot make that in a folder of ours."""
    return [one.path.lstrip("/") for one in shown if test(one.path)]


def _env_file(env: dict[str, str]) -> str:
    if bad := [name for name, value in env.items() if "\n" in name + value or name.startswith("#")]:
        raise NotPossibleError(
            f"the variable {bad[0]!r} cannot be given to a container: it has more than one line"
        )
    return "".join(f"{name}={value}\n" for name, value in env.items())
