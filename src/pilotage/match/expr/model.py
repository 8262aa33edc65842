"""A compiled expression."""

from __future__ import annotations

import functools

from pilotage.match.expr import closure, grammar, tree, value


class Expr:
    """A requirement or a rank."""

    __slots__ = ("_clauses", "_closure", "job_names", "names", "text", "tree")

    def __init__(self, node: tree.Node, text: str) -> None:
        """Make an expression of a tree; `parse` is the usual way."""
        #: As it was written.
        self.text = text
        #: What it is made of.
        self.tree = node
        #: Attributes of the offer that it asks for.
        self.names = tree.names(node, "offer")
        #: Attributes of the job that it asks for.
        self.job_names = tree.names(node, "job")
        parts = tuple(closure.closure(part) for part in conjuncts(node))
        self._clauses = parts
        self._closure = parts[0] if len(parts) == 1 else closure.closure(node)

    def evaluate(self, offer: value.Attributes, job: value.Attributes) -> value.Value:
        """Return its value; `None` is undefined."""
        return value.clean(self._closure(offer, job))

    def holds(self, offer: value.Attributes, job: value.Attributes) -> bool:
        """Return whether it is true, and not false, undefined or something else."""
        for clause in self._clauses:  # noqa: SIM110 - a generator takes twice the time
            if clause(offer, job) is not True:
                return False
        return True

    def number(self, offer: value.Attributes, job: value.Attributes) -> float:
        """Return its value as a number, 1 for true, and 0 for all that is no number."""
        found = self._closure(offer, job)
        if found is True:
            return 1.0
        if not value.is_number(found):
            return 0.0
        try:
            return value.finite(float(found)) or 0.0
        except OverflowError:
            return 0.0

    def __repr__(self) -> str:
        return f"Expr({self.text!r})"


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Expr:
    """Read an expression; raise `BadRule` with the place of what is wrong."""
    return Expr(grammar.tree(text), text)


@functools.lru_cache(maxsize=4096)
def clauses(expr: Expr) -> tuple[Expr, ...]:
    """Return the parts of which all must hold."""
    parts = conjuncts(expr.tree)
    if len(parts) == 1:
        return (expr,)
    return tuple(Expr(part, tree.write(part)) for part in parts)


def conjuncts(node: tree.Node) -> tuple[tree.Node, ...]:
    """Return the trees of which all must hold."""
    return node.items if isinstance(node, tree.ChainOp) and node.sign == "and" else (node,)
