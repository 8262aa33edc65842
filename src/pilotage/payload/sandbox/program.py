"""Run a module of this package as a program, from a folder or from a zip file."""

from __future__ import annotations

import os
import sys

_BEGIN = (
    "import sys\n"
    "sys.path.insert(0, sys.argv.pop(1))\n"
    "from importlib import import_module\n"
    "import_module('sandbox.' + sys.argv.pop(1)).main(sys.argv[1:])\n"
)


def running(module: str) -> list[str]:
    """Make the beginning of a command that runs a module; its arguments follow."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return [sys.executable, "-I", "-S", "-c", _BEGIN, home, module]
