"""Changes of state of workflows: each is one function on rows, inside of one transaction.

What is outside (a message, a transfer, a job) is done by others before or after, and may be done
twice: an attempt is known by its key everywhere, and only the current one counts, and that only
while it is not fenced.
"""

from __future__ import annotations

from pilotage.flow.attempts import attempt, fence, hear, postpone
from pilotage.flow.cancel import cancel
from pilotage.flow.ends import delivered, end, give_up
from pilotage.flow.ends import set_result as result
from pilotage.flow.order import Feed, Order, order
from pilotage.flow.rerun import rerun, stale
from pilotage.flow.submit import submit, within

__all__ = [
    "Feed",
    "Order",
    "attempt",
    "cancel",
    "delivered",
    "end",
    "fence",
    "give_up",
    "hear",
    "order",
    "postpone",
    "rerun",
    "result",
    "stale",
    "submit",
    "within",
]
