"""The directive `generated`: a part of a page that is made of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sphinx.util.docutils import SphinxDirective

from . import tables

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


class Generated(SphinxDirective):
    """Write what a function of `tables` returns."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Make the Markdown and have it parsed in place."""
        # The code may have changed although the page has not.
        self.env.note_reread()
        text = tables.TABLES[self.arguments[0]]()
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Tell Sphinx of the directive."""
    app.add_directive("generated", Generated)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
