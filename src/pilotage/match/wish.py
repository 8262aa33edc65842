"""Requirements, rank and sites of a job, checked before it is accepted."""

from __future__ import annotations

import re

from pilotage.base import errors
from pilotage.job.model import App, Call, Command, JobSpec, Recipe
from pilotage.match import expr

#: What a node must have for jobs that bring an image.
_CONTAINER = "('podman' in sandboxes or 'apptainer' in sandboxes)"
#: What an offer must be like for jobs that use files of the project that they do not declare.
FOLDER = "sees_project"
#: What is true of an offer that runs nothing but applications that its administrator registered.
ONLY_APPLICATIONS = "only_applications"
#: What applications are called that take any program, and any function.
COMMANDS = "commands"
FUNCTIONS = "functions"
#: The applications of an offer; only sites with an agent have this.
APPLICATIONS = "applications"
_APPLICATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}")
# Of sites with an agent the name is what messages allow.
_SITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}")
# An image is an argument of programs: it begins with no dash, and holds nothing but a name.
_IMAGE = re.compile(r"[A-Za-z0-9_./][\w./:@+~-]{0,511}", re.ASCII)


def check(spec: JobSpec) -> None:
    """Raise `BadRule`, with the key at fault, for what a matchmaker could not read."""
    for key, value in (("requirements", spec.requirements), ("rank", spec.rank)):
        try:
            check_expression(value)
        except errors.BadRule as error:
            error.at = key
            raise
    try:
        check_image(spec.image)
    except errors.BadRule as error:
        error.at = "image"
        raise

    try:
        check_site(spec)
    except errors.BadRule as error:
        error.at = "site"
        raise


def check_site(spec: JobSpec) -> None:
    """Raise `BadRule` for what no site could read."""
    if spec.site and not _SITE.fullmatch(spec.site):
        raise errors.BadRule(f"{spec.site!r} cannot be the name of a site")
    if spec.via and not spec.site:
        raise errors.BadRule("`via` says how a job runs at a site, and none is named")
    asked = spec.allocation
    if asked.nodes < 1 or asked.tasks < 1:
        raise errors.BadRule("a job has at least one node and one task")
    if asked.nodes * asked.tasks > 1 and not spec.site:
        raise errors.BadRule("only a batch system gives several nodes or tasks: name its `site`")
    words = (asked.queue, asked.account, asked.qos, asked.constraint, asked.reservation)
    for word in (*words, *asked.extra):
        check_word(word)
    if bad := [one for one in asked.extra if not one.startswith("-")]:
        raise errors.BadRule(f"{bad[0]!r} is no option", hint="write `--name=value`")


def check_word(text: str) -> None:
    """Raise `BadRule` for what a batch system could take for more than one word."""
    if any(one.isspace() or not one.isprintable() for one in text):
        raise errors.BadRule(f"{text!r} is not one word")


def check_expression(text: str) -> None:
    """Raise `BadRule` for what is no expression; no text at all asks for nothing."""
    if text:
        expr.parse(text)


def check_image(image: str) -> None:
    """Raise `BadRule` for what cannot name a container image; no text is no image."""
    scheme, _, rest = image.partition(":")
    # What comes from this machine is a file of the project, or an image that podman knows here.
    own = scheme in {"file", "local"}
    outside = scheme == "file" and (rest.startswith("/") or ".." in rest.split("/"))
    if image and (not _IMAGE.fullmatch(image) or outside or (own and not _IMAGE.fullmatch(rest))):
        hint = (
            "write `docker.io/library/python:3.12`, `docker://…`, the path of a file on the node, "
            "`file:` with the path of a file in the project, or `local:` with an image of yours"
        )
        raise errors.BadRule(f"{image!r} cannot name an image", hint=hint)


def application(recipe: Recipe) -> str:
    """Name the application that a site must have to run a recipe; empty if there is none."""
    match recipe:
        case App(app=name):
            return name
        case Command():
            return COMMANDS
        case Call():
            return FUNCTIONS
        case _:
            return ""


def _application(spec: JobSpec) -> str:
    """Write what a site must be like for what a job runs."""
    name = application(spec.recipe)
    if not _APPLICATION.fullmatch(name):
        return f"not {ONLY_APPLICATIONS}"
    return f'(not {ONLY_APPLICATIONS} or "{name}" in applications)'


def sites(spec: JobSpec) -> bool:
    """Return whether a job may go to a batch queue: it names a site, or needs applications."""
    if spec.site or not spec.requirements:
        return bool(spec.site)
    return APPLICATIONS in expr.parse(spec.requirements).names


def requirements(spec: JobSpec) -> str:
    """Write what an offer must be like: what the job asks for, its site, what its image needs."""
    clauses = [f'site == "{spec.site}"'] if spec.site else []
    if sites(spec):
        clauses.append(_application(spec))
    # A pilot has one node, and starts one task.
    if spec.via or spec.allocation.nodes * spec.allocation.tasks > 1:
        clauses.append("batch_queue")
    elif spec.image:
        clauses.append(_CONTAINER)
    if spec.needs_folder:
        clauses.append(FOLDER)
    if not clauses:
        return spec.requirements
    return " and ".join([*clauses, f"({spec.requirements})"] if spec.requirements else clauses)
