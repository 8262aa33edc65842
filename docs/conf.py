"""How Sphinx builds these pages: MyST Markdown, Furo, warnings are errors (`make docs`)."""

from __future__ import annotations

from importlib import metadata

project = "Pilotage"
author = "the Pilotage authors"
copyright = author
release = metadata.version("pilotage")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"

html_theme = "furo"
html_title = f"Pilotage {release}"
