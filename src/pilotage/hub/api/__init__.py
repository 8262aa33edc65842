"""The HTTP API of the hub: requests with a token come in, JSON goes out.

Reads run in worker threads with their own connections, changes in the one writer thread.
"""

from __future__ import annotations

from pilotage.hub.api.app import Api
from pilotage.hub.api.call import ApiContext

__all__ = ["Api", "ApiContext"]
