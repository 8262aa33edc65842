"""Which GPUs may be used."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

_MEBI = 1 << 20
_ASK_SECONDS = 20.0
_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,uuid,name,memory.total",
    "--format=csv,noheader,nounits",
)


def found(env: Mapping[str, str], root: str = "/", query: Sequence[str] = _QUERY) -> list[Any]:
    """List the GPUs that this process may see, with their memory where the driver tells it."""
    cards = _asked(query) or _devices(root)
    seen = env.get("CUDA_VISIBLE_DEVICES")
    if seen is None:
        chosen = cards
    else:
        wanted = [word.strip() for word in seen.split(",") if word.strip()]
        chosen = [card for word in wanted for card in cards if _is(card, word)]
    return [
        {"name": card["name"], "memory": card["memory"], "device": card["uuid"] or card["index"]}
        for card in chosen
    ]


def _asked(query: Sequence[str]) -> list[dict[str, Any]]:
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [card for line in answer.stdout.splitlines() if (card := _parse(line))]


def _parse(line: str) -> dict[str, Any] | None:
    words = [word.strip() for word in line.split(",")]
    if len(words) != 4:
        return None
    index, uuid, name, memory = words
    # Cards whose memory is that of the machine say `[N/A]`.
    size = int(memory) * _MEBI if memory.isdigit() else 0
    return {"index": index, "uuid": uuid, "name": name, "memory": size}


def _devices(root: str) -> list[dict[str, Any]]:
    try:
        names = os.listdir(os.path.join(root, "dev"))
    except OSError:
        names = []
    numbers = sorted(int(name[6:]) for name in names if re.fullmatch(r"nvidia\d+", name))
    return [{"index": str(n), "uuid": "", "name": "", "memory": 0} for n in numbers]


def _is(card: dict[str, Any], word: str) -> bool:
    return word == card["index"] or bool(card["uuid"] and card["uuid"].startswith(word))
