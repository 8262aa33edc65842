"""Read and publish the workflow's files; nobody ever sees one half-written.

The size of a pixel travels inside each PNG (its pHYs chunk), so lengths come out in micrometres
at the last step without a side file.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

UM_PER_INCH = 25_400.0


class Picture(NamedTuple):
    """A grey image and the width of its pixels."""

    #: Rows by columns, as stored.
    pixels: NDArray[Any]
    #: Micrometres a pixel; None when the file does not say.
    um: float | None


def publish(path: str, content: bytes) -> None:
    """Write a file under a hidden name beside its place, then rename it there."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, hidden = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        # mkstemp makes private files; a result is for the group to read.
        Path(hidden).chmod(0o644)
        Path(hidden).replace(target)
    except BaseException:
        Path(hidden).unlink(missing_ok=True)
        raise


def publish_text(path: str, text: str) -> None:
    """Publish UTF-8 text."""
    publish(path, text.encode())


def publish_json(path: str, value: dict[str, Any]) -> None:
    """Publish a JSON object, one field a line."""
    publish_text(path, json.dumps(value, indent=2) + "\n")


def publish_png(path: str, pixels: NDArray[Any], um: float | None = None) -> None:
    """Publish an image: 8 or 16 bits of grey, or 8 bits of red, green and blue."""
    publish(path, encode(Image.fromarray(pixels), "PNG", um))


def encode(image: Image.Image, kind: str, um: float | None = None) -> bytes:
    """Return the image as the bytes of a file."""
    buffer = io.BytesIO()
    if um is None:
        # Full colour resolution, or thin coloured lines wash out in a JPEG.
        image.save(buffer, kind, quality=86, subsampling=0)
    else:
        image.save(buffer, kind, dpi=(UM_PER_INCH / um, UM_PER_INCH / um))
    return buffer.getvalue()


def read_png(path: str) -> Picture:
    """Read a grey image with its pixel size."""
    with Image.open(path) as image:
        dpi = image.info.get("dpi")
        # Colour scans (a phone on a microscope) are welcome: their luminance is what counts.
        grey = image if image.mode in {"L", "I;16", "I"} else image.convert("L")
        return Picture(np.asarray(grey), UM_PER_INCH / float(dpi[0]) if dpi else None)
