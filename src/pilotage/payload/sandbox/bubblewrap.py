"""Bubblewrap: namespaces for anybody, and no image."""

from __future__ import annotations

import os

from . import cgroup, view
from .box import Box, Wrapped

_PRLIMIT = {
    "cpu_seconds": "cpu",
    "file_size": "fsize",
    "open_files": "nofile",
    "processes": "nproc",
}
#: Where it finds its options, so that no list of processes shows the payload's environment.
_HANDED = 3


def wrap(box: Box, marks: dict[str, str]) -> Wrapped:
    """Start bubblewrap, with its options in an open file."""
    argv = ["bwrap", "--args", str(_HANDED), "--", *limited(box.limits), *box.argv]
    if os.geteuid() == 0:
        # The kernel does not count the processes of root, but a control group does.
        argv = [*cgroup.entering(box.limits["processes"]), *argv]
    handed = "\0".join([*options(box, marks), ""])
    return Wrapped(argv, dict(marks), os.fsencode(handed))


def options(box: Box, marks: dict[str, str]) -> list[str]:
    """List the options of bubblewrap."""
    shown, links = view.system()
    mine = view.asked(box)
    view.check_cwd(box, shown + mine, links)
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


def _bind(one: view.Shown) -> str:
    if one.path.startswith("/dev/"):
        return "--dev-bind"
    return "--bind" if one.writable else "--ro-bind"


def limited(limits: dict[str, int]) -> list[str]:
    """Set limits inside, where the kernel counts only this payload's processes."""
    words = [
        f"--{_PRLIMIT[name]}={value}:{value}" for name, value in limits.items() if name in _PRLIMIT
    ]
    return ["/usr/bin/prlimit", *words, "--"]
