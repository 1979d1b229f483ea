"""Cancel an order."""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from . import orders, outbox, payments, stock
from .db import atomic
from .models import CouponUse, Order, OrderLine, OrderStatus, Reservation


@atomic
def cancel(session: Session, order_id: int, reason: str) -> Order:
    """Cancel an order that hasn't shipped at all, release its stock and refund its payments."""
    order = orders.lock(session, order_id)
    orders.transition(order, OrderStatus.CANCELLED)
    payments.refund_all(session, order, reason)
    held = session.execute(
        select(Reservation, OrderLine.variant_id)
        .join(OrderLine, OrderLine.id == Reservation.order_line_id)
        .where(OrderLine.order_id == order.id)
        .order_by(OrderLine.variant_id, Reservation.warehouse_id)
    ).all()
    for reservation, variant_id in held:
        stock.release(session, reservation.warehouse_id, variant_id, reservation.outstanding)
        session.delete(reservation)
    session.execute(delete(CouponUse).where(CouponUse.order_id == order.id))
    outbox.emit(session, "order.cancelled", {"number": order.number, "reason": reason})
    return order
