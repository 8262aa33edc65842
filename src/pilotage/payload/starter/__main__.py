"""Run the starter from its folder."""

from __future__ import annotations

import importlib
import os
import sys

# In isolated mode this folder is on the path, but not the one that makes it a package.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
importlib.import_module("starter.program").main(sys.argv[1:])
