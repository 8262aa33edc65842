"""Names that users choose: which are allowed, and the closest known one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from pilotage.base import errors

#: Parameters become environment variables of scripts; these would change how a script is run.
RESERVED = frozenset({"PATH", "HOME", "IFS", "ENV", "BASH_ENV", "SHELL"})
RESERVED_PREFIXES = ("LD_", "PYTHON", "PILOTAGE_")

_ENTITY = re.compile(r"\w[\w-]{0,199}")


def closest(word: str, known: Iterable[str]) -> str:
    """Write a hint that names what was probably meant, or else all that is known."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"known are {', '.join(f'`{name}`' for name in names)}" if names else "there are none"


def check_parameter(name: object) -> str:
    """Return the name of a parameter, capture or sweep variable, or say why it cannot be one."""
    if not isinstance(name, str) or not name.isidentifier():
        raise errors.BadRule(
            f"{name!r} cannot be a parameter: it is not an identifier",
            hint="use letters, digits and underscores, and begin with a letter",
        )
    if name in RESERVED or name.startswith(RESERVED_PREFIXES):
        raise errors.BadRule(
            f"{name!r} cannot be a parameter: scripts get parameters as environment variables, "
            "and this one changes how programs run",
            hint=f"call it `{name.lower()}`",
        )
    return name


def check_entity(name: str) -> str:
    """Return the name of a rule or recipe, or say why it cannot be one."""
    if not _ENTITY.fullmatch(name):
        raise errors.BadRule(
            f"{name!r} cannot name a rule or recipe",
            hint="use letters, digits, `_` and `-`, at most 200, and begin with a letter",
        )
    return name
