"""The workflow that emerges: which rule's jobs make other rules fire.

Nobody writes this graph; it follows from what rules declare that they write and what rules wait
for. It grows and changes with the books.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from pilotage import units
from pilotage.job.model import Workflow
from pilotage.rule import layout, overlap, topic
from pilotage.rule.layout import Edge, Node
from pilotage.rule.model import FilePattern, JobPattern, MessagePattern, Pattern, Rule, TimerPattern


class Graph(msgspec.Struct, frozen=True):
    """Rules, final results, and what leads from one to another."""

    #: Rules, and outputs that no rule waits for.
    nodes: tuple[Node, ...]
    #: Labelled with the output or with the states of the job.
    edges: tuple[Edge, ...]


def graph(rules: Iterable[Rule], base: str = "") -> Graph:
    """Find out which rules lead to which; `base` is where relative outputs start from."""
    known = list(rules)
    start = base or next(
        (rule.pattern.base for rule in known if isinstance(rule.pattern, FilePattern)), "/"
    )
    nodes = [_node(rule, start) for rule in known]
    edges: list[Edge] = []
    for rule in known:
        used: set[str] = set()
        for other in known:
            fed = _feeding(rule, other, start)
            used |= fed.keys()
            labels = [*fed.values(), *_ended(rule, other)]
            edges += [Edge(rule.name, other.name, label) for label in labels]
        for output, label in _outputs(rule, start).items():
            if output not in used:
                nodes.append(Node(f"{rule.name}\0{output}", label, kind="output"))
                edges.append(Edge(rule.name, f"{rule.name}\0{output}"))
    return Graph(tuple(nodes), tuple(edges))


def as_svg(found: Graph, title: str = "") -> str:
    """Draw it."""
    return layout.svg(found.nodes, found.edges, title=title)


def as_mermaid(found: Graph) -> str:
    """Write it for Mermaid, which many pages and notebooks draw."""
    number = {node.id: f"n{at}" for at, node in enumerate(found.nodes)}
    lines = ["flowchart LR"]
    for node in found.nodes:
        label = _quoted(node.label) + (
            f"<br/><small>{_quoted(node.sub)}</small>" if node.sub else ""
        )
        left, right = ("([", "])") if node.kind == "output" else ("[", "]")
        lines.append(f'    {number[node.id]}{left}"{label}"{right}')
    for edge in found.edges:
        arrow = f'-- "{_quoted(edge.label)}" -->' if edge.label else "-->"
        lines.append(f"    {number[edge.source]} {arrow} {number[edge.target]}")
    return "\n".join(lines) + "\n"


def as_text(found: Graph) -> str:
    """Write it as trees for a terminal; a rule that was shown before is only named."""
    nodes = {node.id: node for node in found.nodes}
    after: dict[str, list[Edge]] = {}
    for edge in found.edges:
        after.setdefault(edge.source, []).append(edge)
    reached = {edge.target for edge in found.edges if edge.source != edge.target}
    lines: list[str] = []
    shown: set[str] = set()
    for root in sorted(nodes, key=lambda key: key in reached):
        if root not in shown:
            lines.append(_title(nodes[root]))
            _branch(root, "", nodes, after, shown, lines)
    return "\n".join(lines) + "\n" if lines else ""


def _branch(
    root: str,
    indent: str,
    nodes: dict[str, Node],
    after: dict[str, list[Edge]],
    shown: set[str],
    lines: list[str],
) -> None:
    """Write what follows from a node, without recursion: chains may be long."""
    shown.add(root)
    stack = [(edge, indent) for edge in reversed(after.get(root, []))]
    last = {id(edges[-1]) for edges in after.values()}
    while stack:
        edge, before = stack.pop()
        final = id(edge) in last
        via = f"{edge.label} " if edge.label else ""
        again = edge.target in shown and edge.target in after
        title = f"{nodes[edge.target].label} ↑" if again else _title(nodes[edge.target])
        lines.append(f"{before}{'└' if final else '├'}─ {via}→ {title}")
        if edge.target not in shown:
            shown.add(edge.target)
            deeper = before + ("   " if final else "│  ")
            stack += [(each, deeper) for each in reversed(after.get(edge.target, []))]


def _title(node: Node) -> str:
    return f"{node.label}  ({node.sub})" if node.sub else node.label


def _outputs(rule: Rule, base: str) -> dict[str, str]:
    """Return the outputs of a rule as they are shown; those that may be missing have a mark."""
    spec = rule.spec
    optional = {output: f"{_below(output, base)} ?" for output in spec.optional_outputs.values()}
    return optional | {output: _below(output, base) for output in spec.outputs.values()}


def _feeding(rule: Rule, other: Rule, base: str) -> dict[str, str]:
    """Return the outputs of a rule that another waits for; if some surely do, only those."""
    pattern = other.pattern
    if not isinstance(pattern, FilePattern):
        return {}
    outputs = _outputs(rule, base)
    sure = {key: outputs[key] for key in outputs if overlap.surely_feeds(rule, key, pattern, base)}
    return sure or {key: outputs[key] for key in outputs if overlap.feeds(rule, key, pattern, base)}


def _ended(rule: Rule, other: Rule) -> list[str]:
    pattern, recipe = other.pattern, rule.spec.recipe
    names = {rule.name}
    if isinstance(recipe, Workflow):
        names.add(str(recipe.flow.get("name", rule.name)))
    if isinstance(pattern, JobPattern) and any(
        topic.name_match(wanted, name) for wanted in pattern.names for name in names
    ):
        return [" or ".join(sorted(pattern.states))]
    return []


def _node(rule: Rule, base: str) -> Node:
    kind = {
        FilePattern: "file",
        TimerPattern: "timer",
        MessagePattern: "message",
        JobPattern: "job",
    }
    jobs = f" × {len(rule.points)}" if len(rule.points) > 1 else ""
    return Node(rule.name, rule.name + jobs, _trigger(rule.pattern, base), kind[type(rule.pattern)])


def _trigger(pattern: Pattern, base: str) -> str:
    match pattern:
        case FilePattern():
            written = [_below(text, base) for text in pattern.globs]
            return ", ".join(written) or f"/{pattern.regex}/"
        case TimerPattern():
            return pattern.cron or f"every {units.for_people(pattern.every or 0)}"
        case MessagePattern():
            return "message " + ", ".join(pattern.topics)
        case JobPattern():
            return f"after {', '.join(pattern.names)}"


def _below(path: str, base: str) -> str:
    return path.removeprefix("{base}/").removeprefix(base.rstrip("/") + "/")


def _quoted(value: str) -> str:
    return re.sub(r"[^\w ./*(),:=+-]", lambda found: f"#{ord(found[0])};", value)
