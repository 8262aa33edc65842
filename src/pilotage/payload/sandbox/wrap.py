"""Commands that start a payload in its sandbox: bubblewrap, Podman, Apptainer, another user."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import cgroup
from .box import Box, NotPossibleError, Wrapped, box
from .keeper import HOME, USER, kept
from .rule import GATEKEEPER, is_name

#: Folders of programs, for all to read.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
#: What programs look up; secrets are in this folder too, so it is not shown as a whole.
_ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "fonts", "group", "host.conf", "hosts",
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "mime.types",
    "nsswitch.conf", "OpenCL", "passwd", "pki/ca-trust", "pki/tls/certs", "protocols",
    "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip


class Shown(NamedTuple):
    """Something of this machine that is there inside, too."""

    path: str
    writable: bool


def system() -> tuple[list[Shown], dict[str, str]]:
    """Return which folders of the system are shown, and which symbolic links are made."""
    shown, links = [], {}
    for path in _SYSTEM:
        if os.path.islink(path):
            links[path] = os.readlink(path)
        elif os.path.isdir(path):
            shown.append(Shown(path, writable=False))
    names = (f"/etc/{name}" for name in _ETC)
    # A link would lead to what is not shown (/run for resolv.conf), so its target is.
    shown += [Shown(path, writable=False) for path in names if os.path.exists(path)]
    return shown, links


def asked(box: Box) -> list[Shown]:
    """Return what is shown because the order says so, those that contain others first."""
    ours = (*_python(box), *_programs(box))
    shown = {path: Shown(path, writable=False) for path in (*ours, *box.readable)}
    shown.update((path, Shown(path, writable=True)) for path in box.writable)
    if box.place:
        shown[box.place] = Shown(box.place, writable=True)
    for path in shown:
        if not os.path.exists(path):
            raise NotPossibleError(f"{path!r} is not there, so it cannot be shown in a sandbox")
    return sorted(shown.values(), key=lambda one: one.path.count("/") if one.path != "/" else 0)


def check_cwd(box: Box, seen: list[Shown], links: dict[str, str]) -> None:
    """Complain of a working directory that would not be there."""
    roots = [one.path for one in seen] + list(links)
    private = box.cwd in ("/", "/tmp")  # noqa: S108 - inside
    if not private and not any(f"{box.cwd}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        raise NotPossibleError(
            f"its working directory {box.cwd!r} is not shown in its sandbox; "
            "start the pilot with `--writable DIR`, or submit with `--cwd /tmp`"
        )


def _programs(box: Box) -> list[str]:
    """List those of the programs beside this package that the payload is given to."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = (os.path.join(home, name) for name in ("call.py", "warm.py"))
    return [path for path in paths if path in box.argv]


def _python(box: Box) -> list[str]:
    """List the folders of the Python that runs us, if the payload needs that one."""
    if box.argv[0] != sys.executable:
        return []
    roots = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    # Without `site`, as we run, Python does not know that it is in a virtual environment.
    around = os.path.dirname(os.path.dirname(sys.executable))
    if os.path.exists(os.path.join(around, "pyvenv.cfg")):
        roots.add(around)
    return sorted(root for root in roots if not f"{root}/".startswith(("/usr/", "/opt/")))


_PRLIMIT = {
    "cpu_seconds": "cpu",
    "file_size": "fsize",
    "open_files": "nofile",
    "processes": "nproc",
}
#: Where it finds its options, so that no list of processes shows the payload's environment.
_HANDED = 3


def in_bubblewrap(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start bubblewrap, with its options in an open file."""
    argv = ["bwrap", "--args", str(_HANDED), "--", *limited(box.limits), *box.argv]
    if os.geteuid() == 0:
        # The kernel does not count the processes of root, but a control group does.
        argv = [*cgroup.entering(box.limits["processes"]), *argv]
    handed = "\0".join([*options(box, marks), ""])
    return Wrapped(argv, dict(marks), os.fsencode(handed))


def options(box: Box, marks: dict[str, str]) -> list[str]:
    """List the options of bubblewrap."""
    shown, links = system()
    mine = asked(box)
    check_cwd(box, shown + mine, links)
    made = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts"]
    made += ["--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"]
    made += [] if box.network else ["--unshare-net"]
    for path, target in links.items():
        made += ["--symlink", target, path]
    for one in shown:
        made += ["--ro-bind", one.path, one.path]
    scratch = ["--perms", "1777", "--size", str(box.scratch), "--tmpfs"]
    made += ["--proc", "/proc", "--dev", "/dev", *scratch, "/dev/shm"]  # noqa: S108 - inside
    made += [*scratch, "/tmp", "--symlink", "../tmp", "/var/tmp"]  # noqa: S108 - inside
    for one in mine:
        made += [_bind(one), one.path, one.path]
    # Both are in memory and have no size.
    made += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", box.cwd, "--clearenv"]
    for name, value in {**box.env, **marks}.items():
        made += ["--setenv", name, value]
    return made


def _bind(one: Shown) -> str:
    if one.path.startswith("/dev/"):
        return "--dev-bind"
    return "--bind" if one.writable else "--ro-bind"


def limited(limits: dict[str, int]) -> list[str]:
    """Set limits inside, where the kernel counts only this payload's processes."""
    words = [
        f"--{_PRLIMIT[name]}={value}:{value}" for name, value in limits.items() if name in _PRLIMIT
    ]
    return ["/usr/bin/prlimit", *words, "--"]


_PASSED_APPTAINER = (
    "APPTAINER_CACHEDIR",
    "APPTAINER_TMPDIR",
    "HOME",
    "PATH",
    "USER",
    "XDG_RUNTIME_DIR",
)


def program() -> str:
    """Name the program, which was called differently before."""
    return (
        "apptainer"
        if shutil.which("apptainer") or not shutil.which("singularity")
        else "singularity"
    )


def in_apptainer(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start apptainer, with the payload's environment in variables that it renames."""
    if not box.image or box.image.startswith("-"):
        raise NotPossibleError("apptainer needs an image")
    argv = [program(), "--silent", "exec", "--containall", "--cleanenv", "--no-privs"]
    argv += ["--no-home", "--no-mount", "home,cwd,tmp", "--writable-tmpfs"]
    argv += [] if box.network else ["--net", "--network", "none"]
    for one in asked(box):
        argv += ["--bind", _bind_apptainer(one)]
    argv += ["--pwd", box.cwd, box.image, *limited(box.limits), *box.argv]
    prefix = "SINGULARITYENV_" if program() == "singularity" else "APPTAINERENV_"
    passed = {name: os.environ[name] for name in _PASSED_APPTAINER if name in os.environ}
    given = {f"{prefix}{name}": value for name, value in {**box.env, **marks}.items()}
    return Wrapped(argv, {**passed, **given, **marks}, b"")


def _bind_apptainer(one: Shown) -> str:
    if any(sign in one.path for sign in ",:"):
        raise NotPossibleError(f"apptainer cannot show {one.path!r}: a comma or colon is in it")
    return f"{one.path}:{one.path}:{'rw' if one.writable else 'ro'}"


#: What podman needs to know of its user.
_PASSED_PODMAN = (
    "CONTAINERS_CONF", "CONTAINERS_REGISTRIES_CONF", "CONTAINERS_STORAGE_CONF",
    "DBUS_SESSION_BUS_ADDRESS", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PATH",
    "REGISTRY_AUTH_FILE", "USER", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
_ULIMIT = {"cpu_seconds": "cpu", "file_size": "fsize", "open_files": "nofile", "processes": "nproc"}
#: Where podman puts something into every container.
_POINTS = ("proc", "sys", "dev", "tmp", "var/tmp", "run", "etc")
_FILES = ("run/podman-init", "run/.containerenv", "etc/hosts", "etc/hostname", "etc/resolv.conf")


def in_podman(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start a keeper that runs podman."""
    name = (
        "pilotage-"
        + hashlib.sha256(f"{os.getpid()} {box.key} {box.place}".encode()).hexdigest()[:24]
    )
    shown, links = ([], {}) if box.image else system()
    mine = asked(box)
    if not box.image:
        check_cwd(box, shown + mine, links)
    argv = [*_podman(), "run", "--rm", "--name", name, *_walls(box), *_bounds(box)]
    argv += [word for one in shown + mine for word in ("--mount", _mount(one))]
    argv += ["--workdir", box.cwd, "--entrypoint", "", "--env-file", f"{HOME}/env"]
    argv += [] if box.image else ["--rootfs", f"{HOME}/root"]
    if not box.image:
        # Podman would make it, and it would stay.
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
    passed = {name: os.environ[name] for name in _PASSED_PODMAN if name in os.environ}
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


def _mount(one: Shown) -> str:
    """Write a mount as podman reads it, as one line of comma-separated values."""
    fields = ["type=bind", f"source={one.path}", f"destination={one.path}"]
    fields += [] if one.writable else ["ro"]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _points(shown: list[Shown], test: Callable[[str], bool]) -> list[str]:
    """List where something is mounted, since podman cannot make that in a folder of ours."""
    return [one.path.lstrip("/") for one in shown if test(one.path)]


def _env_file(env: dict[str, str]) -> str:
    if bad := [name for name, value in env.items() if "\n" in name + value or name.startswith("#")]:
        raise NotPossibleError(
            f"the variable {bad[0]!r} cannot be given to a container: it has more than one line"
        )
    return "".join(f"{name}={value}\n" for name, value in env.items())


_PASSED_USER = ("HOME", "LANG", "PATH", "USER")


def as_user(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start a keeper that calls the gatekeeper and holds the line to it."""
    if box.user and not is_name(box.user):
        raise NotPossibleError(f"{box.user!r} cannot be the name of a user to run it as")
    if not box.place:
        raise NotPossibleError("a worker that stays cannot run as another user")
    wish = {
        "dir": box.place,
        "cwd": box.cwd,
        "argv": box.argv,
        "env": {**box.env, **marks},
        "limits": box.limits,
        "scratch": box.scratch,
        "network": box.network,
        "shown": [one.path for one in asked(box) if one.path != box.place],
    }
    request = {
        "kind": "user",
        # Without a name the keeper takes a user of the rule that no other payload has.
        "argv": ["sudo", "-n", "--", GATEKEEPER, "run", box.user or USER],
        "told": json.dumps(wish),
    }
    passed = {name: os.environ[name] for name in _PASSED_USER if name in os.environ}
    return kept(request, {**passed, **marks})


_KINDS = {
    "apptainer": in_apptainer,
    "bubblewrap": in_bubblewrap,
    "podman": in_podman,
    "user": as_user,
}


def wrap(order: Mapping[str, Any], marks: Mapping[str, str] | None = None) -> Wrapped:
    """Turn an order into what is started in its place.

    `marks` are variables that both the payload and what is around it have, so that a process is
    known by them. Of the starter's own environment the payload gets nothing.
    """
    kind = order["sandbox"].get("kind", "none")
    if kind == "none":
        return Wrapped(list(order["argv"]), {**order["env"], **(marks or {})}, b"")
    if kind not in _KINDS:
        raise NotPossibleError(f"there is no kind of sandbox {kind!r}")
    return _KINDS[kind](box(order), dict(marks or {}))
