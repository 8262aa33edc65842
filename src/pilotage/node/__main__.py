"""Run the program that the first argument names."""

from __future__ import annotations

import sys

from .dispatch import main

if __name__ == "__main__":
    sys.exit(main())
