"""A new file of settings for an agent, with a word on each of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import urlsplit

from pilotage.agent import settings
from pilotage.agent.settings import Bus, Hub
from pilotage.base import errors

_BUS = ("url", "ca", "certificate", "key", "user")

_FORM = """\
# The agent of {site}. Whoever can write this file decides what runs here.
# Changes count at once; a mistake leaves what was before.

site = {site}
# Users who may call off anybody's job, as the broker knows them.
admins = {admins}

[{table}]
{carrier}

[batch]
batch = {batch}
# Where jobs have their folders: login and worker nodes must both see it.
folder = ".pilotage"

[limits]
# Jobs that go on at once, of all and of each user; 0 means any number.
jobs = 0
user = 0

[keep]
# How long the folders of jobs stay that are over.
done = "7d"
failed = "30d"
"""


def write(file: Path, site: str, by: Bus | Hub, batch: str, admins: tuple[str, ...]) -> Path:
    """Write the file, if there is none and it says nothing that cannot be."""
    names = ("url", "ca", "token_file") if isinstance(by, Hub) else _BUS
    given = {name: getattr(by, name) for name in names}
    lines = [f"{name} = {_text(value)}" for name, value in given.items() if value]
    source = _FORM.format(
        site=_text(site), admins=f"[{', '.join(map(_text, admins))}]", carrier="\n".join(lines),
        table="hub" if isinstance(by, Hub) else "bus", batch=_text(batch),
    )  # fmt: skip
    settings.parse(source, file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A password in the address is nobody else's; without one the file may be root's.
        mode = 0o600 if urlsplit(by.url).password else 0o644
        place = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        message = f"{file} is there already"
        raise errors.Conflict(message, hint="change it with an editor") from None
    except OSError as error:
        raise errors.Unavailable(f"{file} cannot be written: {error.strerror}") from error
    with os.fdopen(place, "w", encoding="utf-8") as target:
        target.write(source)
    return file


def _text(value: str) -> str:
    """Write a text as TOML does, which is as JSON does where nothing odd is in it."""
    return json.dumps(value, ensure_ascii=True)
