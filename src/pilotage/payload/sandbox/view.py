"""What of this machine can be seen in a sandbox that has no image of its own."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from .box import Box, NotPossibleError

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
    """Tell which folders of the system are shown, and which symbolic links are made."""
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
    """Tell what is shown because the order says so, those that contain others first."""
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
