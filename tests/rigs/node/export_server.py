"""Serve a folder until killed: `export_server.py FOLDER INPUT`; the access is printed as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import msgspec

from pilotage.data.export import Exports, lay


async def main(folder: str, source: str) -> None:
    async with Exports() as exports:
        access = await exports.open("1", lay(Path(folder), {"raw": Path(source)}))
        sys.stdout.buffer.write(msgspec.json.encode(access) + b"\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
