"""What payloads find in their environment: little, and nothing of the pilot's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from . import scripts
from .systems import PREFIXES

_SETUP_SECONDS = 300.0
_NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMPDIR",
        "HOSTNAME",
        "LD_LIBRARY_PATH",
        "MODULEPATH",
        "MODULESHOME",
        "MODULE_VERSION",
        "LOADEDMODULES",
        "LMOD_CMD",
        "LMOD_DIR",
        "LMOD_PKG",
        "BASH_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "JOB_ID",
        "NSLOTS",
        "OMP_NUM_THREADS",
    }
)
_FAMILIES = (*PREFIXES, "LC_", "CUDA_", "NVIDIA_", "ROCR_", "HIP_", "XDG_")
#: What looks like a secret is not passed on, whatever it is called.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CRED|PRIVATE|JWT", re.IGNORECASE)
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """Keep of an environment what a payload may need."""
    return {name: value for name, value in env.items() if _is_harmless(name)}


def prepared(
    base: Mapping[str, str], given: Mapping[str, str], setup: Sequence[str], folder: str
) -> tuple[dict[str, str], scripts.Outcome | None]:
    """Add what the hub gives and what the set-up of the site makes of it.

    The set-up program says what to change with lines of `NAME=value`, on file descriptor 3 or, if
    it writes nothing there, on standard output.
    """
    env = {**base, **given}
    if not setup:
        return env, None
    outcome = scripts.run(setup, env, folder, "setup", _SETUP_SECONDS)
    lines = (outcome.extra or outcome.output).splitlines()
    matches = (_LINE.fullmatch(line) for line in lines)
    env.update((found[1], found[2]) for found in matches if found)
    return env, outcome


def _is_harmless(name: str) -> bool:
    known = name in _NAMES or name.startswith(_FAMILIES)
    return known and not _SECRET.search(name)
