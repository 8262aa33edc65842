"""Where a job may run and would rather run, checked before it is taken up."""

from __future__ import annotations

import re

from pilotage import errors
from pilotage.job.model import JobSpec
from pilotage.match import expr

#: What a node must have for jobs that bring an image.
_CONTAINER = "('podman' in sandboxes or 'apptainer' in sandboxes)"
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


def check_expression(text: str) -> None:
    """Raise `BadRule` for what is no expression; no text at all asks for nothing."""
    if text:
        expr.parse(text)


def check_image(image: str) -> None:
    """Raise `BadRule` for what cannot name a container image; no text is no image."""
    if image and not _IMAGE.fullmatch(image):
        hint = "write `docker.io/library/python:3.12`, `docker://…` or the path of a file"
        raise errors.BadRule(f"{image!r} cannot name an image", hint=hint)


def requirements(spec: JobSpec) -> str:
    """Write what a node must be like: what the job asks for, and what its image needs."""
    if not spec.image:
        return spec.requirements
    return f"{_CONTAINER} and ({spec.requirements})" if spec.requirements else _CONTAINER
