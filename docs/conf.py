"""How Sphinx builds these pages: MyST Markdown, Furo, warnings are errors (`make docs`)."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Pilotage"
author = "the Pilotage authors"
copyright = author
release = metadata.version("pilotage")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "_ext.generated"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]
nitpicky = True
# Types are named; only those that have a place on these pages are links.
nitpick_ignore_regex = [("py:class", ".*")]
# Commands have two hyphens, and quotes in code are straight.
smartquotes = False

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = f"Pilotage {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
