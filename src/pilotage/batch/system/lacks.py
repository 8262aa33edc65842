"""What a batch system cannot do, said before it is asked."""

from __future__ import annotations

from .model import BatchError, Order

_PLAIN = Order(key="", script="", folder="")


def refuse(order: Order, system: str, **lacks: str) -> None:
    """Raise a final `BatchError` if the order wants what the system does not have.

    For each field of an order there is what it would need: `queue="queues"`.
    """
    for field, what in lacks.items():
        value = getattr(order, field)
        if value != getattr(_PLAIN, field):
            raise BatchError(f"{field} = {value!r}: {system} has no {what}", final=True)
