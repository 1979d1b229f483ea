"""Goods that customers return."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from . import orders, payments, settings, stock
from .clock import utcnow
from .db import atomic
from .errors import ReturnRejected
from .models import (
    MovementReason,
    Order,
    OrderLine,
    OrderStatus,
    Return,
    ReturnLine,
    ReturnStatus,
    Shipment,
    ShipmentLine,
)
from .money import allocate


def returnable(session: Session, order: Order) -> dict[int, int]:
    """Return the pieces of each line that were sent and aren't part of a return yet."""
    sent = (
        select(func.coalesce(func.sum(ShipmentLine.quantity), 0))
        .where(ShipmentLine.order_line_id == OrderLine.id)
        .scalar_subquery()
    )
    back = (
        select(func.coalesce(func.sum(ReturnLine.quantity), 0))
        .join(Return, Return.id == ReturnLine.return_id)
        .where(ReturnLine.order_line_id == OrderLine.id, Return.status != ReturnStatus.REJECTED)
        .scalar_subquery()
    )
    rows = session.execute(select(OrderLine.id, sent - back).where(OrderLine.order_id == order.id))
    return {line_id: int(quantity) for line_id, quantity in rows}


@atomic
def request(
    session: Session,
    order_id: int,
    quantities: Mapping[int, int],
    reason: str,
    *,
    now: datetime | None = None,
) -> Return:
    """Announce a return, within the allowed time after the last delivery."""
    order = orders.lock(session, order_id)
    if order.status is not OrderStatus.DELIVERED:
        raise ReturnRejected(f"order {order.number} is {order.status.value}")
    delivered = session.scalar(
        select(func.max(Shipment.delivered_at)).where(Shipment.order_id == order.id)
    )
    days = timedelta(days=settings.get(session, "returns.days"))
    if delivered is None or (now or utcnow()) > delivered + days:
        raise ReturnRejected("too late")
    allowed = returnable(session, order)
    if not quantities or any(
        not 0 < quantity <= allowed.get(line_id, 0) for line_id, quantity in quantities.items()
    ):
        raise ReturnRejected(f"{dict(quantities)} of {allowed}")
    entry = Return(order_id=order.id, reason=reason)
    session.add(entry)
    session.flush()
    session.add_all(
        ReturnLine(return_id=entry.id, order_line_id=line_id, quantity=quantity)
        for line_id, quantity in sorted(quantities.items())
    )
    return entry


def value(session: Session, entry: Return) -> int:
    """Return what the customer paid for the returned pieces, including tax.

    Splits each line into pieces whose values add up to exactly the value of the line.
    """
    amount = 0
    for returned, line in session.execute(
        select(ReturnLine, OrderLine)
        .join(OrderLine, OrderLine.id == ReturnLine.order_line_id)
        .where(ReturnLine.return_id == entry.id)
    ):
        before = session.scalar(
            select(func.coalesce(func.sum(ReturnLine.quantity), 0))
            .join(Return, Return.id == ReturnLine.return_id)
            .where(
                ReturnLine.order_line_id == line.id,
                ReturnLine.return_id != entry.id,
                Return.status == ReturnStatus.RECEIVED,
            )
        )
        first = int(before or 0)
        pieces = allocate(line.net + line.tax, [1] * line.quantity)
        amount += sum(pieces[first : first + returned.quantity])
    return amount


@atomic
def receive(session: Session, entry: Return, warehouse_id: int, *, restock: bool = True) -> int:
    """Receive returned goods, refund them, and return the amount."""
    order = orders.lock(session, entry.order_id)
    session.refresh(entry, with_for_update=True)
    if entry.status is not ReturnStatus.REQUESTED:
        raise ReturnRejected(f"return {entry.id} is {entry.status.value}")
    amount = value(session, entry)
    entry.status = ReturnStatus.RECEIVED
    entry.received_at = utcnow()
    if restock:
        for returned, variant_id in session.execute(
            select(ReturnLine, OrderLine.variant_id)
            .join(OrderLine, OrderLine.id == ReturnLine.order_line_id)
            .where(ReturnLine.return_id == entry.id)
            .order_by(OrderLine.variant_id)
        ).all():
            stock.receive(
                session,
                warehouse_id,
                variant_id,
                returned.quantity,
                reason=MovementReason.RETURN,
                reference=order.number,
            )
    payments.refund_amount(session, order, amount, f"return {entry.id}")
    if not any(returnable(session, order).values()):
        orders.transition(order, OrderStatus.REFUNDED)
    return amount
