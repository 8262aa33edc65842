"""The workflow that emerges: which rule's jobs make other rules fire.

It is not written by hand: it follows from what rules declare that they write and what rules wait
for. It grows and changes with the books.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilotage.base import units
from pilotage.draw.graph import Graph, GraphEdge, GraphNode
from pilotage.job.model import Workflow
from pilotage.rule import overlap
from pilotage.rule import trigger as topic
from pilotage.rule.model import FilePattern, JobPattern, MessagePattern, Pattern, Rule, TimerPattern


def graph(rules: Iterable[Rule], base: str = "") -> Graph:
    """Find out which rules lead to which; `base` is where relative outputs start from.

    Nodes are rules, and outputs that no rule waits for; edges are labelled with the output or with
    the states of the job.
    """
    known = list(rules)
    start = base or next(
        (rule.pattern.base for rule in known if isinstance(rule.pattern, FilePattern)), "/"
    )
    nodes = [_node(rule, start) for rule in known]
    edges: list[GraphEdge] = []
    for rule in known:
        used: set[str] = set()
        for other in known:
            fed = _feeding(rule, other, start)
            used |= fed.keys()
            labels = [*fed.values(), *_ended(rule, other)]
            edges += [GraphEdge(rule.name, other.name, label) for label in labels]
        for output, label in _outputs(rule, start).items():
            if output not in used:
                nodes.append(GraphNode(f"{rule.name}\0{output}", label, kind="output"))
                edges.append(GraphEdge(rule.name, f"{rule.name}\0{output}"))
    return Graph(tuple(nodes), tuple(edges))


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


def _node(rule: Rule, base: str) -> GraphNode:
    kind = {
        FilePattern: "file",
        TimerPattern: "timer",
        MessagePattern: "message",
        JobPattern: "job",
    }
    jobs = f" × {len(rule.points)}" if len(rule.points) > 1 else ""
    trigger = _trigger(rule.pattern, base)
    return GraphNode(
        rule.name, rule.name + jobs, trigger, kind[type(rule.pattern)], line=f"({trigger})"
    )


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
