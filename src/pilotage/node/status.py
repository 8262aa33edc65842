"""How the program ends, for whoever submitted it."""

from __future__ import annotations

#: It left as it should.
LEFT = 0
#: The node did not pass a check.
UNFIT = 10
#: The hub does not want it.
REFUSED = 11
#: The hub could not be reached.
UNREACHED = 12
#: Ends are left that the hub has not got; they are in the folder that stays.
UNDELIVERED = 13
#: What starts payloads dies again and again.
BROKEN = 14
