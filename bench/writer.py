"""Write many small files; a program of its own, with nothing but the standard library."""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    """Write the files in turn into each folder, then say when the first and the last was."""
    files, kinds, content, *folders = sys.argv[1:]
    paths = _paths(int(files), int(kinds), folders)
    body = content.encode()
    first = time.time()
    for path in paths:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(handle, body)
        os.close(handle)
    print(json.dumps([first, time.time()]))


def _paths(files: int, kinds: int, folders: list[str]) -> list[str]:
    several = len(folders)
    return [
        f"{folders[number % several]}/k{number // several % kinds}_{number:06d}.txt"
        for number in range(files)
    ]


if __name__ == "__main__":
    main()
