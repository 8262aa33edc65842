"""The hub over HTTP: one table of routes, what each takes and answers, and who may ask.

In: requests with a token. Out: JSON read in worker threads, or written through the one writer.
"""

from __future__ import annotations

from pilotage.hub.api.app import Api
from pilotage.hub.api.call import ApiContext

__all__ = ["Api", "ApiContext"]
