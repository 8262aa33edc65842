"""Print what an administrator installs (`rule PILOT USER…`, `gatekeeper`), or run a `probe`."""

from __future__ import annotations

import sys

from . import probe, rule


def main(argv: list[str]) -> int:
    """Write what was asked for."""
    if argv[:1] == ["rule"] and len(argv) > 2:
        text = rule.sudoers(argv[1], argv[2:])
    elif argv == ["gatekeeper"]:
        text = rule.gatekeeper()
    elif argv == ["probe"]:
        text = "".join(f"{kind}: {probe.words(kind)}\n" for kind in probe.available())
    else:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
