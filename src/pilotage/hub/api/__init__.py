"""The hub over HTTP: one table of routes, what each takes and answers, and who may ask.

In: requests with a token. Out: JSON read in worker threads, or written through the one writer.
"""

from __future__ import annotations

from pilotage.hub.api.app import Api, make
from pilotage.hub.api.call import Hands
from pilotage.hub.api.serve import serve

__all__ = ["Api", "Hands", "make", "serve"]
